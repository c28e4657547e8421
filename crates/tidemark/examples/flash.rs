//! Items that memory evicts go to a file and come back. `cargo run --example flash`

use tidemark::{Builder, OnFlash, TenantSettings};

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("tidemark-example-{}", std::process::id()));
    let cache = Builder::new(8 << 20).flash(&path, 64 << 20).build()?;
    let pages = cache.create("pages", TenantSettings::default())?;

    // Four times what memory has room for.
    let page = |number: u32| vec![number as u8; 16 << 10];
    for number in 0..2048_u32 {
        pages.insert(&number.to_le_bytes(), &page(number))?;
    }

    // A thread that may wait gets them. (Seldom is one gone: the index on flash keeps 16 bits of a key's hash, and a write
    // takes away what may be an older value of its key.)
    let pages_there: Vec<u32> = (0..2048)
        .filter(|number: &u32| {
            pages
                .get(&number.to_le_bytes())
                .is_some_and(|found| found.to_vec() == page(*number))
        })
        .collect();
    assert!(pages_there.len() >= 2040, "{} of 2048", pages_there.len());

    // One that may not is told which pages are on flash, and has another thread wait for them.
    let is_on_flash = |number: &u32| matches!(pages.try_get(&number.to_le_bytes()), Err(OnFlash));
    let number = pages_there.into_iter().find(is_on_flash);
    let number = number.ok_or("all of it is in memory")?;
    let waiting = std::thread::spawn({
        let pages = pages.clone();
        move || pages.get(&number.to_le_bytes()).map(|found| found.to_vec())
    });
    assert_eq!(waiting.join().map_err(|_| "it panicked")?, Some(page(number)));

    assert!(pages.stats().flash.is_some_and(|flash| flash.hits > 0));
    drop((pages, cache));
    std::fs::remove_file(&path)?;
    Ok(())
}
