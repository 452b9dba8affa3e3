//! Regular files. Windows has no call guaranteed not to wait for the disk, so workers make all of them.
//!
//! Transfers at the current position go through the C run-time: only it knows whether a file's lines end as on Windows
//! (text mode), and whether writes are appended (`"a"`).
#![allow(unsafe_code)]

use std::{
    ffi::c_int,
    fs::File,
    io::{self, Seek, SeekFrom},
    mem::ManuallyDrop,
    os::windows::{
        fs::FileExt,
        io::{FromRawHandle, OwnedHandle},
    },
};

use windows_sys::{
    Wdk::Storage::FileSystem::{
        FILE_INFORMATION_CLASS, FileAccessInformation, FilePositionInformation,
        NtQueryInformationFile,
    },
    Win32::{
        Foundation::{ERROR_ACCESS_DENIED, HANDLE, INVALID_HANDLE_VALUE},
        Storage::FileSystem::{FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE, ReOpenFile},
        System::IO::IO_STATUS_BLOCK,
    },
};

use crate::system::{
    descriptor::Descriptor, descriptor_kind::DescriptorKind, errno::Errno, windows::os_error::last,
};

/// Windows takes offsets beyond this as negative.
const MAX_OFFSET: u64 = i64::MAX as u64;

/// Whether a short count ends a transfer of a regular file. It does, as in Ruby, which makes only one call: in text
/// mode each line makes the count short, and Ctrl-Z ends the file.
pub const SHORT_IS_END: bool = true;

/// Reads at `offset`, or at the current position. EOPNOTSUPP for a [`DescriptorKind::File`]: a worker makes the read,
/// and passes another kind. EINVAL for an invalid offset.
pub fn read(
    kind: DescriptorKind,
    descriptor: Descriptor,
    bytes: &mut [u8],
    offset: Option<u64>,
) -> Result<usize, Errno> {
    match (kind, offset) {
        (DescriptorKind::File, None | Some(..=MAX_OFFSET)) => Err(Errno::OPNOTSUPP),
        (_, Some(offset)) => at(descriptor, offset, |file| file.seek_read(bytes, offset)),
        (_, None) => read_here(descriptor, bytes),
    }
}

/// Writes at `offset`, or at the current position, with the same errors as the read.
pub fn write(
    kind: DescriptorKind,
    descriptor: Descriptor,
    bytes: &[u8],
    offset: Option<u64>,
) -> Result<usize, Errno> {
    match (kind, offset) {
        (DescriptorKind::File, None | Some(..=MAX_OFFSET)) => Err(Errno::OPNOTSUPP),
        (_, Some(offset)) => at(descriptor, offset, |file| file.seek_write(bytes, offset)),
        (_, None) => write_here(descriptor, bytes),
    }
}

/// Reads at the current position through the C run-time, as in Ruby.
pub(super) fn read_here(descriptor: Descriptor, bytes: &mut [u8]) -> Result<usize, Errno> {
    descriptor.handle()?;
    let size = bytes.len().min(i32::MAX as usize) as u32;
    // SAFETY: the memory of a slice of at least this size.
    let count = unsafe { libc::read(descriptor.number(), bytes.as_mut_ptr().cast(), size) };
    usize::try_from(count).map_err(|_| of_transfer(io::Error::last_os_error()))
}

/// Writes at the current position through the C run-time, as in Ruby.
pub(super) fn write_here(descriptor: Descriptor, bytes: &[u8]) -> Result<usize, Errno> {
    descriptor.handle()?;
    let size = bytes.len().min(i32::MAX as usize) as u32;
    // SAFETY: the memory of a slice of at least this size.
    let count = unsafe { libc::write(descriptor.number(), bytes.as_ptr().cast(), size) };
    usize::try_from(count).map_err(|_| of_transfer(io::Error::last_os_error()))
}

/// Returns EBADF for a file that is not open in this direction, as the C run-time and Ruby do.
fn of_transfer(error: io::Error) -> Errno {
    match error.raw_os_error() {
        Some(code) if code == ERROR_ACCESS_DENIED as i32 => Errno::BADF,
        _ => error.into(),
    }
}

/// Whether the C run-time translates line endings. (Only the call that changes the mode returns it.)
pub(super) fn is_text(descriptor: Descriptor) -> bool {
    unsafe extern "C" {
        /// Declared by neither libc nor windows-sys.
        fn _setmode(descriptor: c_int, mode: c_int) -> c_int;
    }
    // SAFETY: changes a flag of a descriptor; any number may be passed.
    let set = |mode| unsafe { _setmode(descriptor.number(), mode) };
    let is_text = set(libc::O_BINARY) == libc::O_TEXT;
    if is_text {
        set(libc::O_TEXT);
    }
    is_text
}

/// A transfer at an offset would move the position that other transfers use, so the file is opened again. If the file's
/// sharing mode prevents that, the position is restored after the transfer, as in Ruby.
fn at(
    descriptor: Descriptor,
    offset: u64,
    transfer: impl FnOnce(&File) -> io::Result<usize>,
) -> Result<usize, Errno> {
    if offset > MAX_OFFSET {
        return Err(Errno::INVAL);
    }
    let handle = descriptor.handle()?;
    if let Some(file) = reopened(handle) {
        return transfer(&file).map_err(of_transfer);
    }
    // SAFETY: the handle of an open file, which is not closed here.
    let mut file = ManuallyDrop::new(unsafe { File::from_raw_handle(handle) });
    let position = file.stream_position()?;
    let answer = transfer(&file);
    file.seek(SeekFrom::Start(position))?;
    answer.map_err(of_transfer)
}

/// Queries a property of an open file.
fn property<T: Default>(handle: HANDLE, class: FILE_INFORMATION_CLASS) -> Option<T> {
    let (mut status, mut answer) = (IO_STATUS_BLOCK::default(), T::default());
    let (place, size) = ((&raw mut answer).cast(), size_of::<T>() as u32);
    // SAFETY: the places for the answer outlive the call; both classes in use return a number of this size.
    let code = unsafe { NtQueryInformationFile(handle, &mut status, place, size, class) };
    (code >= 0).then_some(answer)
}

/// Opens the file again with the same rights.
fn reopened(handle: HANDLE) -> Option<File> {
    let rights = property(handle, FileAccessInformation)?;
    let share = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    // SAFETY: an open handle; the returned one is new, and owned here.
    let handle = unsafe { ReOpenFile(handle, rights, share, 0) };
    // SAFETY: see above.
    (handle != INVALID_HANDLE_VALUE).then(|| unsafe { OwnedHandle::from_raw_handle(handle) }.into())
}

/// The file's position when a transfer begins. It is kept because in text mode a transfer's byte count differs from the
/// number of bytes by which the position moves.
#[derive(Clone, Copy, Debug)]
pub struct Start(Option<u64>);

pub fn start(descriptor: Descriptor) -> Start {
    Start(seek_by(descriptor, 0).ok())
}

/// Moves the current position back to where a transfer began, so that the next transfer gets the same bytes.
pub fn put_back(descriptor: Descriptor, start: Start, _count: usize) {
    if let Start(Some(position)) = start {
        // SAFETY: takes no pointer.
        unsafe { libc::lseek64(descriptor.number(), position as i64, libc::SEEK_SET) };
    }
}

/// Moves the current position and returns the new one.
///
/// A mere query must not use SetFilePointerEx: it reads the position and then sets it, which would undo a worker's read
/// in between. Nor may it use the C run-time's lseek, which forgets that the file ended at a Ctrl-Z.
pub fn seek_by(descriptor: Descriptor, distance: i64) -> Result<u64, Errno> {
    let handle = descriptor.handle()?;
    if distance != 0 {
        // SAFETY: takes no pointer.
        let moved = unsafe { libc::lseek64(descriptor.number(), distance, libc::SEEK_CUR) };
        return u64::try_from(moved).map_err(|_| last());
    }
    property(handle, FilePositionInformation).ok_or(Errno::INVAL)
}

/// Returns true without knowing: the reads that could find out are left to workers.
pub const fn is_cached(_: Descriptor, _offset: u64, _length: usize) -> bool {
    true
}

/// Does nothing: the read that follows fills the page cache.
pub const fn populate_page_cache(
    _: Descriptor,
    _offset: u64,
    _length: usize,
    _ahead: u64,
) -> Result<(), Errno> {
    Ok(())
}

/// Reads from `offset` until the memory is full or the file ends, however long it takes.
pub fn read_into(descriptor: Descriptor, bytes: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < bytes.len() {
        let place = Some(offset + done as u64);
        match read(
            DescriptorKind::NeverBlocks,
            descriptor,
            &mut bytes[done..],
            place,
        ) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(_) if done > 0 => break, // the read that begins here gets the error again
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File, OpenOptions},
        io::{Read, Write},
        path::PathBuf,
    };

    use super::{
        Descriptor, DescriptorKind, Errno, is_text, put_back, read, read_into, seek_by, start,
        write,
    };

    const BLOCKING: DescriptorKind = DescriptorKind::NeverBlocks;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("reactor-{}-{name}", std::process::id()))
    }

    #[test]
    fn a_file_that_is_not_open_in_this_direction_is_a_bad_descriptor() {
        let path = path("direction");
        let files = [File::create(&path).unwrap(), File::open(&path).unwrap()];
        let [writing, reading] = [0, 1].map(|at| Descriptor::of(&files[at]));
        for offset in [None, Some(0)] {
            assert_eq!(
                read(BLOCKING, writing, &mut [0; 4], offset),
                Err(Errno::BADF)
            );
            assert_eq!(write(BLOCKING, reading, b"1", offset), Err(Errno::BADF));
        }
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_transfer_at_an_offset_leaves_the_position() {
        let path = path("offset");
        fs::write(&path, "0123456789").unwrap();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        let descriptor = Descriptor::of(&file);
        let mut bytes = [0; 4];
        assert_eq!(read(BLOCKING, descriptor, &mut bytes, None), Ok(4));
        assert_eq!(read(BLOCKING, descriptor, &mut bytes, Some(8)), Ok(2));
        assert_eq!(&bytes, b"8923");
        assert_eq!(write(BLOCKING, descriptor, b"ab", Some(9)), Ok(2));
        assert_eq!(read(BLOCKING, descriptor, &mut bytes, Some(20)), Ok(0));
        assert_eq!(
            read(BLOCKING, descriptor, &mut bytes, Some(u64::MAX)),
            Err(Errno::INVAL)
        );
        assert_eq!(seek_by(descriptor, 1), Ok(5));
        let mut rest = String::new();
        file.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "5678ab");
        assert_eq!(read_into(descriptor, &mut [0; 100], 3), Ok(8));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_that_nobody_else_may_open_is_read_at_an_offset_too() {
        use std::os::windows::fs::OpenOptionsExt;

        let path = path("exclusive");
        fs::write(&path, "0123456789").unwrap();
        let mut file = OpenOptions::new()
            .read(true)
            .share_mode(0)
            .open(&path)
            .unwrap();
        let descriptor = Descriptor::of(&file);
        assert_eq!(seek_by(descriptor, 2), Ok(2));
        let mut bytes = [0; 4];
        assert_eq!(read(BLOCKING, descriptor, &mut bytes, Some(6)), Ok(4));
        assert_eq!(&bytes, b"6789");
        file.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"2345");
        drop(file);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_may_only_be_read_is_not_written() {
        let path = path("rights");
        fs::write(&path, "0").unwrap();
        let file = File::open(&path).unwrap();
        let descriptor = Descriptor::of(&file);
        assert!(write(BLOCKING, descriptor, b"1", Some(0)).is_err());
        assert!(write(BLOCKING, descriptor, b"1", None).is_err());
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_worker_reads_a_file() {
        let file = File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
        let descriptor = Descriptor::of(&file);
        let kind = DescriptorKind::of(descriptor);
        let refused = Err(Errno::OPNOTSUPP);
        assert_eq!(read(kind, descriptor, &mut [0; 4], None), refused);
        assert_eq!(write(kind, descriptor, &[0; 4], Some(3)), refused);
    }

    #[test]
    fn the_mode_of_a_descriptor_is_told_and_stays() {
        let path = path("text");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"1\r\n2").unwrap();
        let reader = File::open(&path).unwrap();
        let text = Descriptor::in_text_mode(&reader);
        assert!(is_text(text) && is_text(text));
        assert!(!is_text(Descriptor::of(&file)));
        let (mut bytes, begun) = ([0; 8], start(text));
        assert_eq!(read(BLOCKING, text, &mut bytes, None), Ok(3));
        assert_eq!(&bytes[..3], b"1\n2");
        put_back(text, begun, 3);
        assert_eq!(read(BLOCKING, text, &mut bytes, None), Ok(3));
        fs::remove_file(path).unwrap();
    }
}
