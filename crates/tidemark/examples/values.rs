//! Values without copies, read and made where they lie; several values at a time. `cargo run --example values`

use std::time::Duration;

use tidemark::{Cache, TenantSettings};

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cache = Cache::with_memory(64 << 20)?;
    let pages = cache.create("pages", TenantSettings::default())?;

    // A long value is written where it will lie. Nobody sees it before the commit.
    let mut room = pages.reserve(b"/index", 1 << 20)?;
    for (number, part) in room.parts().enumerate() {
        part.fill(b'a' + number as u8);
    }
    assert!(pages.get(b"/index").is_none());
    room.commit()?;

    // Reading it copies nothing; the value stays as it was for as long as it is held.
    let before = pages.get(b"/index").ok_or("evicted already")?;
    pages.insert_for(b"/index", b"moved", Duration::from_secs(60))?;
    assert_eq!((before.len(), before.is_in_place()), (1 << 20, true));
    assert!(before.parts().all(|part| part.iter().all(|byte| *byte == part[0])));

    // A look at a value of any length copies nothing either. A short one is looked at under a lock: be quick, and use no
    // cache.
    let words = pages.get_with(b"/index", |page| page.as_bytes().split(|byte| *byte == b' ').count());
    assert_eq!(words, Some(1));

    // Several keys at once cost less than one after the other.
    pages.insert(b"/about", b"us")?;
    let values = pages.get_many(&["/index", "/about", "/nowhere"]);
    let texts: Vec<Option<Vec<u8>>> = values.iter().map(|value| Some(value.as_ref()?.to_vec())).collect();
    assert_eq!(texts, [Some(b"moved".to_vec()), Some(b"us".to_vec()), None]);
    Ok(())
}
