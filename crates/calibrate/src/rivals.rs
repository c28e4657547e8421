//! The models that the perceptron is compared with, as the paper's Fig. 5 does.

use smartcore::linalg::basic::matrix::DenseMatrix;
use smartcore::linear::ridge_regression::{RidgeRegression, RidgeRegressionParameters};
use smartcore::neighbors::knn_regressor::{KNNRegressor, KNNRegressorParameters};
use smartcore::tree::decision_tree_regressor::{DecisionTreeRegressor, DecisionTreeRegressorParameters};
use smartcore::xgboost::{XGRegressor, XGRegressorParameters};

use crate::Error;
use crate::data::Example;

/// Keeps the regressions from being without a solution where inputs depend on each other.
const RIDGE: f64 = 1e-3;
const NEIGHBOURS: usize = 3;
const TREE_DEPTH: u16 = 10;
const BOOSTED_TREES: usize = 200;
const BOOSTED_DEPTH: u16 = 4;
const BOOSTED_RATE: f64 = 0.1;

/// A model's name and the logarithms that it gives for examples.
pub(crate) type Answers = (&'static str, Vec<f64>);

/// Fits each on some examples, and asks it about others.
pub(crate) fn answers(trained: &[Example], asked: &[Example]) -> Result<Vec<Answers>, Error> {
    let known: Vec<f64> = trained.iter().map(|example| example.log_ns).collect();
    let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
    // Ridge regressions have no constant: what is left for them is how far off the mean is.
    let off: Vec<f64> = known.iter().map(|log_ns| log_ns - mean).collect();
    let with_mean = |answers: Vec<f64>| answers.into_iter().map(|off| off + mean).collect::<Vec<f64>>();
    let plain = |inputs: &[f64]| inputs.to_vec();
    let (x, to_ask) = (matrix(trained, plain)?, matrix(asked, plain)?);
    let (x_curved, to_ask_curved) = (matrix(trained, products)?, matrix(asked, products)?);

    let ridge = || {
        RidgeRegressionParameters::default()
            .with_alpha(RIDGE)
            .with_normalize(false)
    };
    let linear = RidgeRegression::fit(&x, &off, ridge())
        .and_then(|model| model.predict(&to_ask))
        .map(with_mean);
    let polynomial = RidgeRegression::fit(&x_curved, &off, ridge())
        .and_then(|model| model.predict(&to_ask_curved))
        .map(with_mean);
    let nearest = KNNRegressor::fit(&x, &known, KNNRegressorParameters::default().with_k(NEIGHBOURS))
        .and_then(|model| model.predict(&to_ask));
    let tree = DecisionTreeRegressorParameters::default()
        .with_max_depth(TREE_DEPTH)
        .with_min_samples_leaf(2);
    let tree = DecisionTreeRegressor::fit(&x, &known, tree).and_then(|model| model.predict(&to_ask));
    let boosted = XGRegressorParameters {
        base_score: mean,
        ..XGRegressorParameters::default()
            .with_n_estimators(BOOSTED_TREES)
            .with_max_depth(BOOSTED_DEPTH)
            .with_learning_rate(BOOSTED_RATE)
    };
    let boosted = XGRegressor::fit(&x, &known, boosted).and_then(|model| model.predict(&to_ask));
    let named = [
        ("linear", linear),
        ("polynomial", polynomial),
        ("nearest neighbours", nearest),
        ("tree", tree),
        ("boosted trees", boosted),
    ];
    let all = named.into_iter().map(|(name, answers)| match answers {
        Ok(answers) => Ok((name, answers)),
        Err(error) => Err(Error::Training(format!("{name}: {error}"))),
    });
    all.collect()
}

fn matrix(examples: &[Example], row: impl Fn(&[f64]) -> Vec<f64>) -> Result<DenseMatrix<f64>, Error> {
    let rows: Vec<Vec<f64>> = examples.iter().map(|example| row(&example.inputs)).collect();
    DenseMatrix::from_2d_vec(&rows).map_err(|error| Error::Training(error.to_string()))
}

/// A constant, the inputs, and all products of two of them.
fn products(inputs: &[f64]) -> Vec<f64> {
    let pairs = inputs
        .iter()
        .enumerate()
        .flat_map(|(place, one)| inputs[place..].iter().map(move |other| one * other));
    [1.0].into_iter().chain(inputs.iter().copied()).chain(pairs).collect()
}
