//! The least there is to it. `cargo run --example ten_lines`

use tidemark::{Cache, TenantSettings};

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cache = Cache::with_memory(64 << 20)?;
    let users = cache.create("users", TenantSettings::default())?;
    users.insert(b"42", b"Ada Lovelace")?;
    let ada = users.get(b"42").ok_or("evicted already")?;
    assert_eq!(ada, b"Ada Lovelace");
    assert!(users.remove(b"42") && users.get(b"42").is_none());
    Ok(())
}
