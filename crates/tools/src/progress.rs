//! Progress for people: a line on standard error, redrawn once a second, where that is a terminal; nothing elsewhere.

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// Lines of progress, one below the other. They are gone when it is dropped.
#[derive(Debug, Default)]
pub struct Lines {
    all: MultiProgress,
    bars: Vec<ProgressBar>,
}

/// The steps of a bar.
const STEPS: u64 = 1000;

impl Lines {
    /// A line for each label.
    pub fn new(labels: &[String]) -> Self {
        let mut lines = Self::default();
        let style = ProgressStyle::with_template("{prefix} [{bar:24}] {percent:>3} %  {msg}");
        for label in labels {
            let bar = lines.all.add(ProgressBar::new(STEPS).with_prefix(label.clone()));
            // The template is a constant; were it wrong, the plain style would do.
            if let Ok(style) = &style {
                bar.set_style(style.clone().progress_chars("=> "));
            }
            lines.bars.push(bar);
        }
        lines
    }

    /// Redraws a line: how much is done, 0 to 1, and the text beside it.
    pub fn set(&self, line: usize, done_ratio: f64, message: String) {
        if let Some(bar) = self.bars.get(line) {
            bar.set_position((done_ratio.clamp(0.0, 1.0) * STEPS as f64) as u64);
            bar.set_message(message);
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        for bar in &self.bars {
            bar.finish_and_clear();
        }
    }
}
