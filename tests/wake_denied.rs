//! A driver that cannot be woken is not opened. Otherwise its first sleep would have no end.

#![cfg(target_os = "linux")]

#[path = "support/refuse.rs"]
mod refuse;

use std::thread;

use reactor::Backend;
use refuse::refuse;

#[test]
fn a_driver_whose_wake_descriptor_cannot_be_polled_is_not_opened() {
    // The result of the probe is kept for the process, so this file has only one test.
    let thread = thread::spawn(|| {
        // To epoll_ctl(2), EPERM means that the kernel does not poll this kind of file.
        refuse(libc::SYS_epoll_ctl, libc::EPERM);
        let reason = Backend::Uring.availability().unwrap_err();
        let uring_built = cfg!(feature = "uring");
        assert_eq!(reason.raw_os_error(), uring_built.then_some(libc::EPERM));
        assert!(Backend::open(Some(Backend::Uring)).is_err());
        if Backend::native() == Backend::Epoll {
            let error = Backend::open(Some(Backend::Epoll)).map(drop).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        }
    });
    thread.join().unwrap();
}
