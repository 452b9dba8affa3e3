//! Regular files: transfers that do not wait for the disk, and filling the page cache.

use rustix::fs::SeekFrom;

use crate::system::{descriptor::Descriptor, errno::Errno, kind::DescriptorKind, nowait};

/// The kernel takes offsets beyond this as negative. pread(2) and pwrite(2) refuse them; for preadv2(2), -1 means the
/// current position.
const MAX_OFFSET: u64 = i64::MAX as u64;

/// Whether a short count ends a transfer of a regular file. Here it only means that the next page is not in the page cache.
pub const SHORT_IS_END: bool = false;

/// To bring a range into the page cache, one byte in each piece of this size is read, because the disk delivers larger
/// pieces anyway.
const POPULATE_STEP: u64 = 32 << 10;

/// To find out whether a range is cached, one byte in each piece of this size is read, because the kernel reads ahead
/// further than that.
const CACHED_STEP: usize = 64 << 10;

/// The most that a worker reads with one system call: a non-preemptible kernel (PREEMPT_NONE) lets the loop's thread run
/// only at the end of a call (`bench/NOTES.md`, "Which file reads go to a worker").
const READ_PIECE: usize = 128 << 10;

/// Reads from a regular file at `offset`, or at its current position: EAGAIN if the data is not in the page cache.
/// Files of other kinds are read as read(2) and pread(2) read them. EINVAL for offsets above `i64::MAX`, as for
/// negative ones.
pub fn read(
    kind: DescriptorKind,
    descriptor: Descriptor,
    bytes: &mut [u8],
    offset: Option<u64>,
) -> Result<usize, Errno> {
    match (kind, offset) {
        (DescriptorKind::File, None | Some(..=MAX_OFFSET)) => {
            nowait::read(descriptor, bytes, offset)
        }
        (_, Some(offset)) => Ok(rustix::io::pread(descriptor, bytes, offset)?),
        (_, None) => Ok(rustix::io::read(descriptor, bytes)?),
    }
}

/// Writes to a regular file at `offset`, or at its current position: EAGAIN if the write might take long. For other
/// kinds of files and for invalid offsets see [`read`].
pub fn write(
    kind: DescriptorKind,
    descriptor: Descriptor,
    bytes: &[u8],
    offset: Option<u64>,
) -> Result<usize, Errno> {
    match (kind, offset) {
        (DescriptorKind::File, None | Some(..=MAX_OFFSET)) => {
            nowait::write(descriptor, bytes, offset)
        }
        (_, Some(offset)) => Ok(rustix::io::pwrite(descriptor, bytes, offset)?),
        (_, None) => Ok(rustix::io::write(descriptor, bytes)?),
    }
}

/// The position when a transfer begins. Only queried on platforms where a transfer's byte count may differ from the file's.
#[derive(Clone, Copy, Debug)]
pub struct Start;

pub const fn start(_: Descriptor) -> Start {
    Start
}

/// Moves the current position back by the number of bytes that a transfer has read, so that the next transfer gets
/// them.
pub fn put_back(descriptor: Descriptor, _: Start, count: usize) {
    _ = seek_by(descriptor, -(count as i64));
}

/// Moves the current position and returns the new one.
pub fn seek_by(descriptor: Descriptor, distance: i64) -> Result<u64, Errno> {
    Ok(rustix::fs::seek(descriptor, SeekFrom::Current(distance))?)
}

/// Whether the range, up to the end of the file, is in the page cache, judging by one byte per piece.
pub fn is_cached(descriptor: Descriptor, offset: u64, length: usize) -> bool {
    let last = std::iter::once(length.saturating_sub(1));
    let places = (0..length).step_by(CACHED_STEP).chain(last);
    for place in places {
        let mut byte = [0];
        let place = offset.saturating_add(place as u64);
        match read(DescriptorKind::File, descriptor, &mut byte, Some(place)) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
    true
}

/// Brings the range into the page cache and waits until it is there. Reads single bytes, so next to nothing is copied.
/// Asks the kernel for `ahead` bytes from `offset`, or for twice the range if that is more.
pub fn populate_page_cache(
    descriptor: Descriptor,
    offset: u64,
    length: usize,
    ahead: u64,
) -> Result<(), Errno> {
    nowait::advise_will_need(
        descriptor,
        offset,
        ahead.max((length as u64).saturating_mul(2)),
    );
    let end = offset.saturating_add(length as u64);
    let mut place = offset;
    while place < end {
        match read(
            DescriptorKind::NeverBlocks,
            descriptor,
            &mut [0],
            Some(place),
        ) {
            Ok(0) => break,
            Ok(_) => place += POPULATE_STEP,
            Err(Errno::INTR) => {}
            Err(_) if place > offset => break, // the read that gets here will meet it again
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Reads from `offset` until the memory is full or the file ends, however long it takes.
///
/// At the first byte that is not in the page cache, the kernel is asked for everything missing and as much again.
pub fn read_into(descriptor: Descriptor, bytes: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let (mut kind, mut done) = (DescriptorKind::File, 0);
    while done < bytes.len() {
        let place = offset + done as u64;
        let end = bytes.len().min(done + READ_PIECE);
        match read(kind, descriptor, &mut bytes[done..end], Some(place)) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(_) if kind == DescriptorKind::File => {
                kind = DescriptorKind::NeverBlocks;
                let missing = 2 * (bytes.len() - done) as u64;
                nowait::advise_will_need(descriptor, place, missing);
            }
            Err(_) if done > 0 => break, // the read that gets here will meet it again
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::{Descriptor, is_cached, populate_page_cache, read_into};

    #[test]
    fn a_range_ends_with_the_file() {
        let file = File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
        let descriptor = Descriptor::of(&file);
        let longest = usize::MAX;
        assert_eq!(populate_page_cache(descriptor, 0, longest, 0), Ok(()));
        assert!(is_cached(descriptor, 0, longest)); // must terminate
    }

    #[test]
    fn a_file_is_read_to_its_end() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let file = File::open(path).unwrap();
        let whole = std::fs::read(path).unwrap();
        let mut bytes = vec![0; whole.len() + 100];
        let descriptor = Descriptor::of(&file);
        assert_eq!(populate_page_cache(descriptor, 0, bytes.len(), 0), Ok(()));
        assert_eq!(read_into(descriptor, &mut bytes, 0), Ok(whole.len()));
        assert_eq!(whole, bytes[..whole.len()]);
        assert_eq!(read_into(descriptor, &mut bytes, 3), Ok(whole.len() - 3));
    }
}
