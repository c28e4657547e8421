//! Secrets that are made, rotated and ended.

use super::*;
use crate::secret::NewSecret;

/// The secrets of `shop` as the data plane knows them.
fn hashes(scene: &Scene) -> Vec<[u8; 32]> {
    let shop = scene.data_plane.tenant("shop").unwrap().0;
    shop.secrets.iter().map(|secret| secret.hash.0).collect()
}

fn new_secret(name: &str, permissions: Option<Permissions>) -> NewSecret {
    NewSecret {
        name: name.parse().unwrap(),
        permissions,
        ..NewSecret::default()
    }
}

#[test]
fn a_third_secret_of_a_name_ends_none_that_may_be_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    let first = scene
        .controller
        .create_tenant("shop", SettingsPatch::default())
        .unwrap();
    let add = |permissions| Rotation::Add(new_secret("default", permissions));
    let second = scene
        .controller
        .rotate("shop", add(Some(Permissions::READ)))
        .unwrap()
        .unwrap();
    assert_eq!(hashes(&scene), [first.hash().0, second.hash().0]);
    let refused = refusal(scene.controller.rotate("shop", add(None)));
    assert_eq!(refused, (RefusalKind::OverLimit, Some("force".into())));
    assert_eq!(hashes(&scene), [first.hash().0, second.hash().0], "nothing has ended");
    let forced = NewSecret {
        is_forced: true,
        ..new_secret("default", None)
    };
    let third = scene.controller.rotate("shop", Rotation::Add(forced)).unwrap().unwrap();
    assert_eq!(hashes(&scene), [second.hash().0, third.hash().0]);
    let view = scene.controller.tenant("shop").unwrap();
    let permissions: Vec<_> = view.secrets.iter().map(|secret| secret.permissions.as_str()).collect();
    assert_eq!(
        permissions,
        ["read", "read,write,flush,admin"],
        "permissions do not leak into the next secret"
    );
    let finish = || Rotation::Finish("default".parse().unwrap());
    for _ in 0..2 {
        assert!(scene.controller.rotate("shop", finish()).unwrap().is_none());
        assert_eq!(hashes(&scene), [third.hash().0]);
    }
    // The open tenant has no secret until it is given one.
    assert!(scene.controller.rotate("default", finish()).unwrap().is_none());
    scene.controller.rotate("default", add(None)).unwrap().unwrap();
    assert_eq!(scene.controller.tenant("default").unwrap().secrets.len(), 1);
}

#[test]
fn named_secrets_are_rotated_apart_and_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    let writer = scene
        .controller
        .create_tenant("shop", SettingsPatch::default())
        .unwrap();
    let add = |scene: &mut Scene, new| scene.controller.rotate("shop", Rotation::Add(new)).unwrap().unwrap();
    let reader = add(&mut scene, new_secret("reader", Some(Permissions::READ)));
    let next_reader = add(&mut scene, new_secret("reader", None));
    let next_writer = add(&mut scene, new_secret("default", None));
    let all = [&writer, &reader, &next_reader, &next_writer].map(|secret| secret.hash().0);
    assert_eq!(hashes(&scene), all);
    let of_reader: SecretName = "reader".parse().unwrap();
    scene
        .controller
        .rotate("shop", Rotation::Finish(of_reader.clone()))
        .unwrap();
    assert_eq!(hashes(&scene), [all[0], all[2], all[3]], "the writer's are untouched");
    drop(scene);
    let mut scene = Scene::new(folder.path());
    let described: Vec<_> = scene.controller.tenant("shop").unwrap().secrets;
    let described: Vec<_> = described
        .iter()
        .map(|one| (one.name.as_str(), one.permissions.as_str()))
        .collect();
    let everything = "read,write,flush,admin";
    assert_eq!(
        described,
        [("default", everything), ("reader", "read"), ("default", everything)]
    );
    // A secret of another name than the tenant's own has the permissions of the one before it.
    scene
        .controller
        .rotate("shop", Rotation::End(of_reader.clone()))
        .unwrap();
    assert_eq!(hashes(&scene), [all[0], all[3]]);
    let refused = refusal(scene.controller.rotate("shop", Rotation::Finish(of_reader)));
    assert_eq!(refused.0, RefusalKind::NotFound);
    let refused = refusal(scene.controller.rotate("shop", Rotation::End(SecretName::default())));
    assert_eq!(refused.0, RefusalKind::OverLimit);
}

#[test]
fn a_secret_of_ones_own_is_taken_once_and_names_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path());
    let text = "q0E8l5n1p2m3k4j5h6g7f8";
    let own = || SecretText::given(text).unwrap();
    let patch = SettingsPatch::default();
    scene.controller.create_tenant_with("shop", patch, Some(own())).unwrap();
    assert_eq!(hashes(&scene), [own().hash().0]);
    let again = NewSecret {
        text: Some(own()),
        ..new_secret("reader", None)
    };
    let refused = refusal(scene.controller.rotate("shop", Rotation::Add(again)));
    assert_eq!(refused, (RefusalKind::Invalid, Some("secret".into())));
    for number in 1..8 {
        let new = new_secret(&format!("name{number}"), None);
        scene.controller.rotate("shop", Rotation::Add(new)).unwrap();
    }
    let refused = refusal(
        scene
            .controller
            .rotate("shop", Rotation::Add(new_secret("ninth", None))),
    );
    assert_eq!(refused, (RefusalKind::OverLimit, Some("secret_name".into())));
}
