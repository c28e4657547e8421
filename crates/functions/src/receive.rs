//! Frames from a connection, for the proxy and for the functions' program.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt as _;

use crate::tls::Receiving;
use crate::wire::{FRAME_BYTES_MAX, Frame};

/// Reads one frame, and its body.
///
/// # Errors
/// The connection broke, or brought bytes that are no frame.
pub(crate) async fn read_frame(from: &mut Receiving) -> io::Result<(Frame, Bytes)> {
    let length = read_length(from).await?;
    read_rest(from, length).await
}

/// Reads the beginning of a frame: how many bytes follow.
///
/// # Errors
/// The connection broke, or brought bytes that are no frame.
pub(crate) async fn read_length(from: &mut Receiving) -> io::Result<usize> {
    let length = from.read_u32().await? as usize;
    if length > FRAME_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(length)
}

/// Reads the rest of a frame that has so many bytes, and its body.
///
/// # Errors
/// The connection broke, or brought bytes that are no frame.
pub(crate) async fn read_rest(from: &mut Receiving, length: usize) -> io::Result<(Frame, Bytes)> {
    let mut bytes = BytesMut::with_capacity(length);
    let mut limited = from.take(length as u64);
    while bytes.len() < length {
        if limited.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let (frame, at) = Frame::read(&bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok((frame, bytes.split_off(at).freeze()))
}
