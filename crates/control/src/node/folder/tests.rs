//! Meeting in a folder: living instances, dead ones, and files that are neither.

use super::*;

fn lease(lease_bytes: u64) -> Lease {
    Lease {
        lease_bytes,
        ..Lease::default()
    }
}

/// The leases that one sees of the others; `None` for those that cannot be read.
fn seen(folder: &mut Folder) -> Vec<Option<u64>> {
    let peers = folder.survey().unwrap();
    peers.into_iter().map(|peer| Some(peer.lease?.lease_bytes)).collect()
}

fn files(path: &Path) -> usize {
    fs::read_dir(path).unwrap().count()
}

/// A lease file that nobody holds any more, as a killed instance leaves it.
fn leave_dead(path: &Path) {
    let dead = Folder::join(path, &lease(99)).unwrap();
    dead.own.file.unlock().unwrap();
}

#[test]
fn the_living_are_seen_and_the_dead_are_removed() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path();
    let mut first = Folder::join(path, &lease(1)).unwrap();
    assert_eq!(seen(&mut first), []);
    let mut second = Folder::join(path, &lease(2)).unwrap();
    assert_eq!((seen(&mut first), seen(&mut second)), (vec![Some(2)], vec![Some(1)]));
    second.state(&lease(7)).unwrap();
    assert_eq!(seen(&mut first), [Some(7)]);
    leave_dead(path);
    assert_eq!((files(path), seen(&mut first), files(path)), (3, vec![Some(7)], 2));
    drop(second);
    assert_eq!((seen(&mut first), files(path)), (vec![], 1));
}

#[test]
fn garbage_that_is_held_is_unknown_and_other_things_are_nothing() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path();
    let mut first = Folder::join(path, &lease(1)).unwrap();
    for name in ["memory", "notes.txt", "instance-1.lease.bak"] {
        fs::write(path.join(name), "x").unwrap();
    }
    fs::create_dir(path.join("instance-folder.lease")).unwrap();
    std::os::unix::fs::symlink("memory", path.join("instance-link.lease")).unwrap();
    let pipe = path.join("instance-pipe.lease");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    assert_eq!(seen(&mut first), []);
    // Garbage that nobody holds is a dead one's.
    fs::write(path.join("instance-garbage.lease"), "garbage").unwrap();
    assert_eq!(seen(&mut first), []);
    assert!(!path.join("instance-garbage.lease").exists());

    let mut second = Folder::join(path, &lease(2)).unwrap();
    let file = path.join(&second.own.name);
    fs::write(&file, "garbage").unwrap();
    assert_eq!(seen(&mut first), [None]);
    // The next statement mends it.
    second.state(&lease(3)).unwrap();
    assert_eq!(seen(&mut first), [Some(3)]);
}

#[test]
fn an_instance_whose_file_was_removed_is_not_forgotten() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path();
    let mut first = Folder::join(path, &lease(1)).unwrap();
    let mut second = Folder::join(path, &lease(2)).unwrap();
    assert_eq!(seen(&mut first), [Some(2)]);
    for replaced in [false, true] {
        let file = path.join(&second.own.name);
        fs::remove_file(&file).unwrap();
        if replaced {
            fs::write(&file, "garbage").unwrap();
        }
        assert_eq!(seen(&mut first), [Some(2)], "its file is still open");
        second.state(&lease(2)).unwrap();
        // For a moment both files might be held, never none.
        assert_eq!(seen(&mut first), [Some(2)]);
        let mut third = Folder::join(path, &lease(4)).unwrap();
        assert!(seen(&mut third).contains(&Some(2)), "who comes now sees the new one");
        drop(third);
        assert_eq!(seen(&mut first), [Some(2)]);
    }
}

#[test]
fn a_folder_that_is_gone_or_full_says_so_and_the_lease_stays() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("node");
    assert!(matches!(
        Folder::join(&path, &lease(1)),
        Err(FolderError::System { doing: "write", .. })
    ));
    fs::create_dir(&path).unwrap();
    let mut first = Folder::join(&path, &lease(1)).unwrap();
    let mut second = Folder::join(&path, &lease(2)).unwrap();
    assert_eq!(seen(&mut first), [Some(2)]);

    // A disk without room, where writing in place needs some.
    let file = std::mem::replace(
        &mut second.own.file,
        OpenOptions::new().write(true).open("/dev/full").unwrap(),
    );
    let full = second.own.write(&path, &lease(9)).unwrap_err().to_string();
    assert!(
        full.contains("can not write") && full.contains("No space left"),
        "{full}"
    );
    second.own.file = file;
    assert_eq!(seen(&mut first), [Some(2)]);

    fs::rename(&path, place.path().join("elsewhere")).unwrap();
    second.state(&lease(5)).unwrap();
    let gone = first.survey().unwrap_err().to_string();
    assert!(gone.contains("can not read") && gone.contains("No such file"), "{gone}");
    fs::rename(place.path().join("elsewhere"), &path).unwrap();
    assert_eq!(seen(&mut first), [Some(5)]);

    fs::remove_dir_all(&path).unwrap();
    assert!(matches!(
        second.state(&lease(6)),
        Err(FolderError::System { doing: "write", .. })
    ));
    fs::create_dir(&path).unwrap();
    second.state(&lease(6)).unwrap();
    assert_eq!(seen(&mut first), [Some(6)]);
}

#[test]
fn the_nodes_memory_is_decimal_text() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path();
    let missing = node_bytes(path, 10).unwrap_err().to_string();
    assert!(
        missing.contains("can not read") && missing.contains("memory"),
        "{missing}"
    );
    for (text, bytes) in [
        ("1073741824", Some(1 << 30)),
        ("10\n", Some(10)),
        (" 11 \n\n", Some(11)),
        ("9", None),
        ("", None),
        ("1GiB", None),
        ("-20", None),
        ("+20", None),
        ("2 0", None),
        ("99999999999999999999", None),
        ("\u{feff}20", None),
    ] {
        fs::write(path.join(MEMORY_NAME), text).unwrap();
        let read = node_bytes(path, 10);
        assert_eq!(read.as_ref().ok(), bytes.as_ref(), "{text:?}");
        if let Err(error) = read {
            assert!(error.to_string().contains("at least 10"), "{error}");
        }
    }
    fs::write(path.join(MEMORY_NAME), [0xff; 100]).unwrap();
    assert!(node_bytes(path, 10).is_err());
}

#[test]
fn too_many_instances_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let mut all: Vec<Folder> = (0..INSTANCES_MAX)
        .map(|_| Folder::join(place.path(), &lease(1)).unwrap())
        .collect();
    assert_eq!(seen(&mut all[0]).len(), INSTANCES_MAX - 1);
    all.push(Folder::join(place.path(), &lease(1)).unwrap());
    assert!(matches!(all[1].survey(), Err(FolderError::TooMany { .. })));
}
