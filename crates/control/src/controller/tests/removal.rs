//! Tenants that are removed.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::answer::{Answer, answer};

/// The result of a command, if it is there.
fn now<T>(answer: &mut Answer<T>) -> Option<Result<T, ControlError>> {
    match Pin::new(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

#[test]
fn a_removal_is_answered_when_the_memory_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    scene.create("shop", floor(512 * MIB));
    scene.data_plane.set_demand("shop", GIB);
    scene.seconds(1);
    scene.data_plane.withhold_removed(true);
    let (reply, mut removed) = answer();
    scene.controller.remove_tenant("shop".into(), reply);
    scene.seconds(1);
    assert!(now(&mut removed).is_none(), "not before the memory is back");
    assert_eq!(scene.controller.tenant("shop").unwrap().state, "removing");
    assert_eq!(
        refusal(scene.controller.create_tenant("shop", SettingsPatch::default())).0,
        RefusalKind::NameTaken
    );
    assert_eq!(
        refusal(scene.controller.set_tenant("shop", cap(MIB))).0,
        RefusalKind::NotFound
    );
    // Nobody needs its floor any more.
    scene.controller.set_server(pool(256 * MIB)).unwrap();

    scene.data_plane.withhold_removed(false);
    scene.seconds(1);
    now(&mut removed).unwrap().unwrap();
    assert_eq!(refusal(scene.controller.tenant("shop")).0, RefusalKind::NotFound);
    scene.create("shop", SettingsPatch::default());
    drop(scene);
    assert_eq!(Scene::new(folder.path()).controller.tenants().len(), 2);
}

#[test]
fn a_removal_whose_memory_stays_away_says_so_after_ten_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    scene.create("shop", SettingsPatch::default());
    scene.data_plane.withhold_removed(true);
    let (reply, mut removed) = answer();
    scene.controller.remove_tenant("shop".into(), reply);
    scene.seconds(9);
    assert!(now(&mut removed).is_none());
    scene.seconds(1);
    let answer = now(&mut removed).unwrap();
    assert!(
        matches!(answer, Err(ControlError::MemoryNotBack { seconds: 10, .. })),
        "{answer:?}"
    );
}

#[test]
fn the_open_tenant_can_be_removed_for_good_and_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    let (reply, mut removed) = answer();
    scene.controller.remove_tenant("default".into(), reply);
    scene.seconds(1);
    now(&mut removed).unwrap().unwrap();
    drop(scene);
    let mut scene = Scene::new(folder.path());
    assert!(scene.controller.tenants().is_empty());
    scene.create("default", SettingsPatch::default());
    assert!(scene.data_plane.tenant("default").unwrap().0.open);
}
