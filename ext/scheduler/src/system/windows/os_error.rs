//! Converts errors of Windows and Winsock to the `errno` numbers to which Ruby maps them (`rb_w32_map_errno`).

use std::io;

use windows_sys::Win32::{Foundation as win32, Networking::WinSock as winsock};

use crate::system::errno::Errno;

/// EIO for errors that no system call reported.
impl From<&io::Error> for Errno {
    fn from(error: &io::Error) -> Self {
        match (error.raw_os_error(), error.kind()) {
            (Some(code), _) => Self::new(number(code)),
            (None, io::ErrorKind::Unsupported) => Self::OPNOTSUPP,
            (None, _) => Self::IO,
        }
    }
}

/// Where C has no number, Ruby uses Winsock's own.
const WINSOCK: std::ops::RangeInclusive<i32> = 10_000..=11_999;

fn number(code: i32) -> i32 {
    let known = CODES.iter().find(|(known, _)| *known == code);
    match known {
        Some((_, number)) => *number,
        None if WINSOCK.contains(&code) => code,
        None => libc::EINVAL,
    }
}

/// The error of this thread's last failed Windows or Winsock call.
pub(super) fn last() -> Errno {
    io::Error::last_os_error().into()
}

const CODES: [(i32, i32); 71] = [
    (win32::ERROR_FILE_NOT_FOUND as i32, libc::ENOENT),
    (win32::ERROR_PATH_NOT_FOUND as i32, libc::ENOENT),
    (win32::ERROR_BAD_NETPATH as i32, libc::ENOENT),
    (win32::ERROR_BAD_PATHNAME as i32, libc::ENOENT),
    (win32::ERROR_MOD_NOT_FOUND as i32, libc::ENOENT),
    (win32::ERROR_TOO_MANY_OPEN_FILES as i32, libc::EMFILE),
    (win32::ERROR_ACCESS_DENIED as i32, libc::EACCES),
    (win32::ERROR_CURRENT_DIRECTORY as i32, libc::EACCES),
    (win32::ERROR_BAD_COMMAND as i32, libc::EACCES),
    (win32::ERROR_CRC as i32, libc::EACCES),
    (win32::ERROR_GEN_FAILURE as i32, libc::EACCES),
    (win32::ERROR_LOCK_VIOLATION as i32, libc::EACCES),
    (win32::ERROR_NOT_LOCKED as i32, libc::EACCES),
    (win32::ERROR_SHARING_VIOLATION as i32, libc::EACCES),
    (win32::ERROR_NETWORK_ACCESS_DENIED as i32, libc::EACCES),
    (win32::ERROR_PRIVILEGE_NOT_HELD as i32, libc::EACCES),
    (win32::ERROR_SEEK_ON_DEVICE as i32, libc::EACCES),
    (win32::ERROR_INVALID_HANDLE as i32, libc::EBADF),
    (win32::ERROR_INVALID_TARGET_HANDLE as i32, libc::EBADF),
    (win32::ERROR_DIRECT_ACCESS_HANDLE as i32, libc::EBADF),
    (win32::ERROR_NOT_ENOUGH_MEMORY as i32, libc::ENOMEM),
    (win32::ERROR_NOT_ENOUGH_QUOTA as i32, libc::ENOMEM),
    (win32::ERROR_NOT_READY as i32, libc::ENXIO),
    (win32::ERROR_BAD_UNIT as i32, libc::ENODEV),
    (win32::ERROR_WRITE_PROTECT as i32, libc::EROFS),
    (win32::ERROR_SEEK as i32, libc::EIO),
    (win32::ERROR_READ_FAULT as i32, libc::EIO),
    (win32::ERROR_WRITE_FAULT as i32, libc::EIO),
    (win32::ERROR_DISK_FULL as i32, libc::ENOSPC),
    (win32::ERROR_FILE_EXISTS as i32, libc::EEXIST),
    (win32::ERROR_ALREADY_EXISTS as i32, libc::EEXIST),
    (win32::ERROR_WAIT_NO_CHILDREN as i32, libc::ECHILD),
    (win32::ERROR_CHILD_NOT_COMPLETE as i32, libc::ECHILD),
    (win32::ERROR_NO_PROC_SLOTS as i32, libc::EAGAIN),
    (win32::ERROR_MAX_THRDS_REACHED as i32, libc::EAGAIN),
    (win32::ERROR_PIPE_BUSY as i32, libc::EAGAIN),
    (win32::ERROR_BROKEN_PIPE as i32, libc::EPIPE),
    (win32::ERROR_BAD_PIPE as i32, libc::EPIPE),
    (win32::ERROR_NO_DATA as i32, libc::EPIPE),
    (win32::ERROR_PIPE_NOT_CONNECTED as i32, libc::EPIPE),
    (win32::ERROR_OPERATION_ABORTED as i32, libc::EINTR),
    (winsock::WSAEINTR, libc::EINTR),
    (winsock::WSAEBADF, libc::EBADF),
    (winsock::WSAEACCES, libc::EACCES),
    (winsock::WSAEFAULT, libc::EFAULT),
    (winsock::WSAEINVAL, libc::EINVAL),
    (winsock::WSAEMFILE, libc::EMFILE),
    (winsock::WSAEWOULDBLOCK, libc::EWOULDBLOCK),
    (winsock::WSAEINPROGRESS, libc::EINPROGRESS),
    (winsock::WSAEALREADY, libc::EALREADY),
    (winsock::WSAENOTSOCK, libc::ENOTSOCK),
    (winsock::WSAEDESTADDRREQ, libc::EDESTADDRREQ),
    (winsock::WSAEMSGSIZE, libc::EMSGSIZE),
    (winsock::WSAEPROTOTYPE, libc::EPROTOTYPE),
    (winsock::WSAENOPROTOOPT, libc::ENOPROTOOPT),
    (winsock::WSAEPROTONOSUPPORT, libc::EPROTONOSUPPORT),
    (winsock::WSAEOPNOTSUPP, libc::EOPNOTSUPP),
    (winsock::WSAEAFNOSUPPORT, libc::EAFNOSUPPORT),
    (winsock::WSAEADDRINUSE, libc::EADDRINUSE),
    (winsock::WSAEADDRNOTAVAIL, libc::EADDRNOTAVAIL),
    (winsock::WSAENETDOWN, libc::ENETDOWN),
    (winsock::WSAENETUNREACH, libc::ENETUNREACH),
    (winsock::WSAENETRESET, libc::ENETRESET),
    (winsock::WSAECONNABORTED, libc::ECONNABORTED),
    (winsock::WSAECONNRESET, libc::ECONNRESET),
    (winsock::WSAENOBUFS, libc::ENOBUFS),
    (winsock::WSAEISCONN, libc::EISCONN),
    (winsock::WSAENOTCONN, libc::ENOTCONN),
    (winsock::WSAETIMEDOUT, libc::ETIMEDOUT),
    (winsock::WSAECONNREFUSED, libc::ECONNREFUSED),
    (winsock::WSAEHOSTUNREACH, libc::EHOSTUNREACH),
];

#[cfg(test)]
mod tests {
    use std::io;

    use super::{CODES, Errno, winsock};

    #[test]
    fn an_error_has_the_number_that_ruby_gives_it() {
        let errno = |code| Errno::from(io::Error::from_raw_os_error(code)).number();
        for (code, number) in CODES {
            assert_eq!(errno(code), number);
        }
        assert_eq!(errno(winsock::WSAESHUTDOWN), winsock::WSAESHUTDOWN); // C has none
        assert_eq!(errno(9999), libc::EINVAL);
        let would_block = io::Error::from_raw_os_error(winsock::WSAEWOULDBLOCK);
        assert_eq!(Errno::from(would_block), Errno::AGAIN);
    }

    #[test]
    fn an_error_that_is_not_the_systems_has_a_number() {
        assert_eq!(Errno::from(io::Error::other("?")), Errno::IO);
        let unsupported = io::Error::from(io::ErrorKind::Unsupported);
        assert_eq!(Errno::from(unsupported), Errno::OPNOTSUPP);
    }
}
