//! Scope: which instances of a node share a cachelet.

/// An instance of a function on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instance {
    /// The application; cachelets are never shared between two of them.
    pub application: String,
    /// The function of the application.
    pub function: String,
    /// The instance's own name.
    pub name: String,
}

/// Groups instances; those with the same label of the same application share a cachelet.
pub trait Groups {
    /// The label of the group that an instance is in.
    fn label(&self, instance: &Instance) -> String;
}

/// Which instances share a cachelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Scope {
    /// None.
    Instance,
    /// Those of a function.
    Function,
    /// Those of an application.
    Application,
}

impl Scope {
    /// Every value.
    pub const ALL: [Self; 3] = [Self::Instance, Self::Function, Self::Application];
}

impl Groups for Scope {
    fn label(&self, instance: &Instance) -> String {
        let Instance {
            application,
            function,
            name,
        } = instance;
        match self {
            Self::Instance => format!("{application}/{function}/{name}"),
            Self::Function => format!("{application}/{function}"),
            Self::Application => application.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wider_scopes_have_fewer_groups() {
        let instance = |function: &str, name: &str| Instance {
            application: "shop".to_owned(),
            function: function.to_owned(),
            name: name.to_owned(),
        };
        let instances = [instance("pay", "1"), instance("pay", "2"), instance("list", "3")];
        for (scope, groups) in [(Scope::Instance, 3), (Scope::Function, 2), (Scope::Application, 1)] {
            let labels: std::collections::BTreeSet<_> = instances.iter().map(|one| scope.label(one)).collect();
            assert_eq!(labels.len(), groups, "{scope:?}");
        }
    }
}
