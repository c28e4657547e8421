//! The flash below memory: opened before the first client, closed behind the last one.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidemark_control::backup::FLASH_IDENTITY_NAME;
use tidemark_control::{State as _, StateFile};
use tidemark_flash::device::FileDevice;
use tidemark_flash::{CloseError, random_identity};
use tidemark_plane::Flash;

use crate::failure::Failure;
use crate::options::ServeOptions;

const IDENTITY_BYTES: usize = 16;
/// The snapshot of the index, in the data folder.
const INDEX_NAME: &str = "flash.index";

/// Opens the volume that the options name, for the tenants of the state file.
pub(super) fn open(options: &ServeOptions, state: &StateFile) -> anyhow::Result<Option<Arc<Flash>>> {
    let Some(wanted) = &options.flash else { return Ok(None) };
    let failed = |text: String| Failure::failed(format!("--flash {}: {text}", wanted.path.display()));
    let device = FileDevice::open(&wanted.path, wanted.size_bytes)
        .map_err(|error| Failure::failed(format!("--flash {error}")))?;
    let identity_file = options.data.join(FLASH_IDENTITY_NAME);
    let identity = identity(&identity_file).map_err(|error| failed(error.to_string()))?;
    let tenants = state.tenants()?;
    let ids: Vec<_> = tenants.iter().map(|tenant| tenant.id).collect();
    let is_direct = device.is_direct();
    let index_file = options.data.join(INDEX_NAME);
    let flash = Flash::open(Arc::new(device), identity, &ids, Some(&index_file));
    let flash = flash.map_err(|error| failed(error.to_string()))?;
    let give_up = move || {
        tracing::error!("the flash device failed and is not used any more: what it held is a miss");
        // Deletes cannot be written to it: whatever is on it, nothing of it may ever be found again.
        if let Err(error) = make_identity(&identity_file) {
            tracing::error!(%error, "making a new {FLASH_IDENTITY_NAME}");
        }
    };
    flash.store().set_given_up(Box::new(give_up));
    tracing::info!(
        path = %wanted.path.display(),
        bytes = flash.size_bytes(),
        queue = flash.store().queue_name(),
        is_direct,
        index = %flash.store().opening(),
        "flash is open"
    );
    Ok(Some(flash))
}

/// Writes the data that is in memory only.
pub(super) fn close(flash: &Flash) {
    match flash.store().close() {
        Ok(()) => tracing::info!("flash is closed"),
        Err(error @ CloseError::Index(_)) => tracing::warn!(%error, "the next start reads all footers"),
        Err(error) => tracing::error!(%error, "closing flash"),
    }
}

fn identity(path: &Path) -> std::io::Result<[u8; IDENTITY_BYTES]> {
    match std::fs::read(path) {
        Ok(bytes) => bytes
            .try_into()
            .map_err(|_| std::io::Error::other(format!("{} has not {IDENTITY_BYTES} bytes", path.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => make_identity(path),
        Err(error) => Err(error),
    }
}

/// Makes a new identity, durably, in the place of the old one.
fn make_identity(path: &Path) -> std::io::Result<[u8; IDENTITY_BYTES]> {
    let bytes = random_identity()?;
    let beside: PathBuf = path.with_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    if let Some(folder) = path.parent() {
        std::fs::File::open(folder)?.sync_all()?;
    }
    Ok(bytes)
}
