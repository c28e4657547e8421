//! Pods that are instances of functions, and the events of their lives. Pure.
//!
//! A pod is known by its UID: a later pod of the same name is another instance. Kubernetes knows no paused pods; a
//! platform that freezes its instances says so by the local API, with the same UID.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::quantity;
use crate::instances::{Happening, INSTANCES_MAX, LifeEvent};

/// The service that a pod of Knative belongs to.
const KNATIVE_SERVICE: &str = "serving.knative.dev/service";
/// The mark of a pod of OpenWhisk in which an action runs.
const OPENWHISK_ACTION: &str = "user-action-pod";
/// The invoker that made it, such as `invoker0`.
const OPENWHISK_INVOKER: &str = "invoker";
/// The application that something is a part of, as Kubernetes recommends to say it.
const PART_OF: &str = "app.kubernetes.io/part-of";
/// The pods that OpenWhisk has in store have this in place of a namespace.
const PREWARM: &str = "prewarm";

/// The parts of a pod that matter here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pod {
    pub(super) metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    name: String,
    namespace: String,
    uid: String,
    labels: BTreeMap<String, String>,
    pub(super) resource_version: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Container {
    resources: Resources,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    limits: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: String,
    #[serde(rename = "podIP")]
    pod_ip: String,
    qos_class: String,
}

/// How the node's kubelet names control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    /// As slices of systemd.
    Systemd,
    /// As plain folders.
    Plain,
}

impl Naming {
    /// The one that is used below the hierarchy's root.
    pub(super) fn below(root: &Path) -> Self {
        let slices = ["kubepods.slice", "memory/kubepods.slice"];
        if slices.iter().any(|slice| root.join(slice).is_dir()) {
            Self::Systemd
        } else {
            Self::Plain
        }
    }

    /// The folder of a pod.
    fn folder(self, uid: &str, qos_class: &str) -> String {
        // Guaranteed pods have no folder of their class.
        let class = match qos_class {
            "Burstable" => "burstable",
            "BestEffort" => "besteffort",
            _ => "",
        };
        match (self, class) {
            (Self::Plain, "") => format!("kubepods/pod{uid}"),
            (Self::Plain, class) => format!("kubepods/{class}/pod{uid}"),
            (Self::Systemd, "") => format!("kubepods.slice/kubepods-pod{}.slice", uid.replace('-', "_")),
            (Self::Systemd, class) => format!(
                "kubepods.slice/kubepods-{class}.slice/kubepods-{class}-pod{}.slice",
                uid.replace('-', "_")
            ),
        }
    }
}

/// Which function of which application a pod is an instance of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Identity {
    app: Option<String>,
    function: Option<String>,
}

impl Pod {
    /// Its identity, which may not be known yet; `None` for pods that are no functions' instances.
    fn identity(&self) -> Option<Identity> {
        let labels = &self.metadata.labels;
        if let Some(service) = labels.get(KNATIVE_SERVICE) {
            let app = labels.get(PART_OF).unwrap_or(&self.metadata.namespace);
            return Some(Identity {
                app: Some(app.clone()),
                function: Some(service.clone()),
            });
        }
        if labels.get(OPENWHISK_ACTION).is_none_or(|marked| marked != "true") {
            return None;
        }
        let invoker = labels.get(OPENWHISK_INVOKER).map_or("", String::as_str);
        let named = action_of(&self.metadata.name, invoker);
        Some(named.unwrap_or_default())
    }

    fn has_ended(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// The sum of its containers' limits; nothing if one of them has none.
    fn memory_limit_bytes(&self) -> Option<u64> {
        let limit = |container: &Container| quantity::bytes(container.resources.limits.get("memory")?);
        let mut sum = 0_u64;
        for container in &self.spec.containers {
            sum = sum.saturating_add(limit(container)?);
        }
        (sum > 0).then_some(sum)
    }

    fn event(&self, identity: Identity, naming: Naming) -> LifeEvent {
        let Metadata { uid, .. } = &self.metadata;
        LifeEvent {
            event: Happening::Created,
            instance: uid.clone(),
            app: identity.app,
            function: identity.function,
            address: self.status.pod_ip.parse().ok(),
            // Before its class is decided, its folder is not known.
            cgroup: (!self.status.qos_class.is_empty()).then(|| naming.folder(uid, &self.status.qos_class)),
            memory_limit_bytes: self.memory_limit_bytes(),
        }
    }
}

/// Namespace and action of a pod of OpenWhisk, from its name: `wskowdev-invoker-00-3-guest-hello` is the third pod of
/// invoker 0, for the action `hello` of `guest`. Dashes are taken out of namespaces before, so that the first one ends it.
fn action_of(pod: &str, invoker: &str) -> Option<Identity> {
    let number = invoker.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    if number.is_empty() {
        return None;
    }
    let parts: Vec<&str> = pod.split('-').collect();
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let count = (1..parts.len()).find(|place| is_number(parts[*place]) && parts[place - 1].ends_with(number))?;
    let (namespace, action) = (parts.get(count + 1)?, parts.get(count + 2..)?.join("-"));
    let is_known = *namespace != PREWARM && !namespace.is_empty() && !action.is_empty();
    is_known.then(|| Identity {
        app: Some((*namespace).to_owned()),
        function: Some(action),
    })
}

/// The pods that were heard of, by their UIDs, and the last event about each.
#[derive(Debug, Default)]
pub(super) struct Followed {
    said: BTreeMap<String, LifeEvent>,
}

impl Followed {
    /// A pod is there, or has changed.
    pub(super) fn is(&mut self, pod: &Pod, naming: Naming) -> Option<LifeEvent> {
        let uid = &pod.metadata.uid;
        if pod.has_ended() {
            return self.gone(pod);
        }
        let now = pod.event(pod.identity()?, naming);
        match self.said.get(uid) {
            Some(before) if *before == now => return None,
            None if self.said.len() >= INSTANCES_MAX => return None,
            _ => {}
        }
        let is_new = self.said.insert(uid.clone(), now.clone()).is_none();
        let event = if is_new {
            Happening::Created
        } else {
            Happening::Identified
        };
        Some(LifeEvent { event, ..now })
    }

    /// A pod is gone, or has ended.
    pub(super) fn gone(&mut self, pod: &Pod) -> Option<LifeEvent> {
        self.said.remove(&pod.metadata.uid).map(removed)
    }

    /// These are all pods that there are.
    pub(super) fn are(&mut self, pods: &[Pod], naming: Naming) -> Vec<LifeEvent> {
        let is_there = |uid: &String| pods.iter().any(|pod| pod.metadata.uid == *uid);
        let missing: Vec<String> = self.said.keys().filter(|uid| !is_there(uid)).cloned().collect();
        let gone = missing.iter().filter_map(|uid| self.said.remove(uid).map(removed));
        let mut events: Vec<LifeEvent> = gone.collect();
        events.extend(pods.iter().filter_map(|pod| self.is(pod, naming)));
        events
    }
}

fn removed(said: LifeEvent) -> LifeEvent {
    LifeEvent {
        event: Happening::Removed,
        ..said
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, labels: &serde_json::Value) -> Pod {
        let pod = json!({
            "metadata": {"name": name, "namespace": "shop", "uid": format!("u-{name}"), "labels": labels},
            "spec": {"containers": [
                {"resources": {"limits": {"memory": "128Mi", "cpu": "1"}}},
                {"resources": {"limits": {"memory": "32Mi"}}},
            ]},
            "status": {"phase": "Running", "podIP": "10.1.0.9", "qosClass": "Burstable"},
        });
        serde_json::from_value(pod).unwrap()
    }

    /// Application and function of a pod; `None` if it is no function's.
    fn check(name: &str, labels: &serde_json::Value, expected: Option<(Option<&str>, Option<&str>)>) {
        let identity = pod(name, labels).identity();
        let expected = expected.map(|(app, function)| Identity {
            app: app.map(str::to_owned),
            function: function.map(str::to_owned),
        });
        assert_eq!(identity, expected, "{name} {labels}");
    }

    #[test]
    fn labels_say_whose_instance_a_pod_is() {
        let knative = json!({"serving.knative.dev/service": "pay", "serving.knative.dev/revision": "pay-00001"});
        check("pay-1", &knative, Some((Some("shop"), Some("pay"))));
        let part = json!({"serving.knative.dev/service": "pay", "app.kubernetes.io/part-of": "store"});
        check("pay-1", &part, Some((Some("store"), Some("pay"))));
        check("web-1", &json!({"app": "web"}), None);
        check("web-1", &json!({"user-action-pod": "false"}), None);
        let action = json!({"user-action-pod": "true", "invoker": "invoker0"});
        check(
            "wskowdev-invoker-00-3-guest-hello-world",
            &action,
            Some((Some("guest"), Some("hello-world"))),
        );
        check("wsk0-12-guest-hello", &action, Some((Some("guest"), Some("hello"))));
        check("wskowdev-invoker-00-1-prewarm-nodejs20", &action, Some((None, None)));
        check("wskowdev-invoker-00", &action, Some((None, None)));
        check(
            "wsk0-3-guest-hello",
            &json!({"user-action-pod": "true"}),
            Some((None, None)),
        );
        let other = json!({"user-action-pod": "true", "invoker": "invoker12"});
        check("wsk3-12-7-guest-hello", &other, Some((Some("guest"), Some("hello"))));
    }

    #[test]
    fn control_groups_are_where_kubelet_makes_them() {
        for (naming, class, expected) in [
            (Naming::Plain, "Burstable", "kubepods/burstable/poda-b"),
            (Naming::Plain, "BestEffort", "kubepods/besteffort/poda-b"),
            (Naming::Plain, "Guaranteed", "kubepods/poda-b"),
            (Naming::Systemd, "Guaranteed", "kubepods.slice/kubepods-poda_b.slice"),
            (
                Naming::Systemd,
                "Burstable",
                "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice",
            ),
        ] {
            assert_eq!(naming.folder("a-b", class), expected);
        }
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Naming::below(root.path()), Naming::Plain);
        std::fs::create_dir_all(root.path().join("memory/kubepods.slice")).unwrap();
        assert_eq!(Naming::below(root.path()), Naming::Systemd);
    }

    #[test]
    fn a_pod_is_said_once_for_each_change() {
        let labels = json!({"serving.knative.dev/service": "pay"});
        let mut followed = Followed::default();
        let running = pod("pay-1", &labels);
        let mut pending = running.clone();
        pending.status = Status::default();
        let first = followed.is(&pending, Naming::Plain).unwrap();
        assert_eq!(
            (first.event, first.address, first.cgroup),
            (Happening::Created, None, None)
        );
        let second = followed.is(&running, Naming::Plain).unwrap();
        assert_eq!(second.event, Happening::Identified);
        assert_eq!(second.address, Some("10.1.0.9".parse().unwrap()));
        assert_eq!(second.cgroup.as_deref(), Some("kubepods/burstable/podu-pay-1"));
        assert_eq!(second.memory_limit_bytes, Some(160 << 20));
        assert_eq!(followed.is(&running, Naming::Plain), None, "nothing is new");
        let mut failed = running.clone();
        failed.status.phase = "Failed".into();
        assert_eq!(followed.is(&failed, Naming::Plain).unwrap().event, Happening::Removed);
        assert_eq!(followed.gone(&failed), None, "that was said");
    }

    #[test]
    fn a_list_says_who_is_gone() {
        let labels = json!({"serving.knative.dev/service": "pay"});
        let mut followed = Followed::default();
        let (one, two, other) = (pod("1", &labels), pod("2", &labels), pod("3", &json!({})));
        assert_eq!(followed.are(&[one.clone(), two.clone(), other], Naming::Plain).len(), 2);
        let mut again = two.clone();
        // A stateful set gives a pod's name to the next one.
        again.metadata.uid = "u-later".into();
        let events = followed.are(&[one, again], Naming::Plain);
        let said: Vec<_> = events
            .iter()
            .map(|event| (event.event, event.instance.as_str()))
            .collect();
        assert_eq!(said, [(Happening::Removed, "u-2"), (Happening::Created, "u-later")]);
    }

    #[test]
    fn a_container_without_a_limit_leaves_the_pod_without_one() {
        let mut unlimited = pod("1", &json!({}));
        unlimited.spec.containers.push(Container::default());
        assert_eq!(unlimited.memory_limit_bytes(), None);
    }
}
