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

    // A thread that may wait gets every page.
    let all_there = (0..2048_u32).all(|number| {
        pages
            .get(&number.to_le_bytes())
            .is_some_and(|found| found.to_vec() == page(number))
    });
    assert!(all_there);

    // One that may not is told which pages are on flash, and has another thread wait for them.
    let on_flash = (0..2048).find(|number: &u32| matches!(pages.try_get(&number.to_le_bytes()), Err(OnFlash)));
    let number = on_flash.ok_or("all of it is in memory")?;
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
