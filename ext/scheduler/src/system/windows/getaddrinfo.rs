//! Winsock's `getaddrinfo`; Ruby has initialized Winsock. It blocks, so a pool worker calls it.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, c_int},
    io, ptr, slice,
};

use windows_sys::Win32::Networking::WinSock::{ADDRINFOA, freeaddrinfo, getaddrinfo as ask};

pub use crate::system::address::{Address, Hints, Unresolved};

/// Queries the resolver, blocking as long as it takes. Any thread may call it.
pub fn getaddrinfo(
    host: Option<&CStr>,
    service: Option<&CStr>,
    hints: &Hints,
) -> Result<Vec<Address>, Unresolved> {
    let pointer = |text: Option<&CStr>| text.map_or(ptr::null(), |text| text.as_ptr().cast());
    let wanted = ADDRINFOA {
        ai_family: hints.family,
        ai_socktype: hints.socktype,
        ai_protocol: hints.protocol,
        ai_flags: hints.flags,
        ..Default::default()
    };
    let mut list = ptr::null_mut();
    // SAFETY: NUL-terminated strings, and a place for the list, all alive during the call.
    let code = unsafe { ask(pointer(host), pointer(service), &wanted, &mut list) };
    if code != 0 {
        return Err(Unresolved { code, errno: 0 });
    }
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: we own the list until it is freed below; each entry has an address of the stated length.
    while let Some(entry) = unsafe { next.as_ref() } {
        let (address, length) = (entry.ai_addr.cast::<u8>(), entry.ai_addrlen);
        found.push(Address {
            family: entry.ai_family,
            socktype: entry.ai_socktype,
            protocol: entry.ai_protocol,
            // SAFETY: see above.
            bytes: unsafe { slice::from_raw_parts(address, length) }.to_vec(),
        });
        next = entry.ai_next;
    }
    // SAFETY: the list came from getaddrinfo, and nothing refers to it any more.
    unsafe { freeaddrinfo(list) };
    Ok(found)
}

/// Whether the lookup needs no network: Windows resolves this name itself.
pub fn is_in_hosts_file(host: &CStr, _family: c_int) -> bool {
    host.to_bytes().eq_ignore_ascii_case(b"localhost")
}

/// The system's message, formatted like `gai_strerror`'s: with a blank instead of the line end.
pub fn error_message(code: c_int) -> String {
    let text = io::Error::from_raw_os_error(code).to_string();
    let end = text.rfind(" (os error").unwrap_or(text.len());
    format!("{} ", &text[..end])
}

#[cfg(test)]
mod tests {
    use windows_sys::Win32::Networking::WinSock::{
        AF_INET, AF_UNSPEC, AI_NUMERICHOST, SOCK_STREAM, WSAHOST_NOT_FOUND,
    };

    use super::{Hints, error_message, getaddrinfo, is_in_hosts_file};

    #[test]
    fn a_numeric_host_needs_no_resolver() {
        let _initialized = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let hints = Hints {
            family: AF_UNSPEC.into(),
            socktype: SOCK_STREAM,
            protocol: 0,
            flags: AI_NUMERICHOST as i32,
        };
        let found = getaddrinfo(Some(c"127.0.0.1"), Some(c"80"), &hints).unwrap();
        assert_eq!(found[0].family, AF_INET.into());
        assert_eq!(found[0].bytes[2..8], [0, 80, 127, 0, 0, 1]);
        let refused = getaddrinfo(Some(c"example.invalid"), None, &hints).unwrap_err();
        assert_eq!(refused.code, WSAHOST_NOT_FOUND);
        let message = error_message(refused.code);
        assert!(
            message.ends_with(". ") && !message.contains("os error"),
            "{message}"
        );
    }

    #[test]
    fn localhost_needs_no_network() {
        assert!(is_in_hosts_file(c"LocalHost", 0));
        assert!(!is_in_hosts_file(c"example.org", 0));
    }
}
