//! getaddrinfo(3). It blocks, so a pool worker calls it.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, c_int},
    ptr, slice,
};

pub use crate::system::address::{Address, Hints, Unresolved};

/// Queries the resolver, blocking as long as it takes. Any thread may call it.
pub fn getaddrinfo(
    host: Option<&CStr>,
    service: Option<&CStr>,
    hints: &Hints,
) -> Result<Vec<Address>, Unresolved> {
    let pointer = |text: Option<&CStr>| text.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: the struct consists of numbers and pointers, for which zero means "not given".
    let mut wanted: libc::addrinfo = unsafe { std::mem::zeroed() };
    wanted.ai_family = hints.family;
    wanted.ai_socktype = hints.socktype;
    wanted.ai_protocol = hints.protocol;
    wanted.ai_flags = hints.flags;
    let mut list = ptr::null_mut();
    let (code, errno) = loop {
        // SAFETY: NUL-terminated strings, and a place for the list, all alive during the call.
        let code =
            unsafe { libc::getaddrinfo(pointer(host), pointer(service), &wanted, &mut list) };
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        // A signal interrupted one of its calls.
        if code != libc::EAI_SYSTEM || errno != libc::EINTR {
            break (code, errno);
        }
    };
    if code != 0 {
        // A resolver module that is configured but not installed counts as "no such name", as in Ruby: [ruby-list:49420].
        let missing = cfg!(target_os = "linux") && errno == libc::ENOENT;
        return Err(match code {
            libc::EAI_SYSTEM if missing => Unresolved {
                code: libc::EAI_NONAME,
                errno: 0,
            },
            libc::EAI_SYSTEM => Unresolved { code, errno },
            _ => Unresolved { code, errno: 0 },
        });
    }
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: we own the list until it is freed below; each entry has an address of the stated length.
    while let Some(entry) = unsafe { next.as_ref() } {
        let (address, length) = (entry.ai_addr.cast::<u8>(), entry.ai_addrlen as usize);
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
    unsafe { libc::freeaddrinfo(list) };
    Ok(found)
}

/// Whether /etc/hosts has an address of this family for the host. The lookup then needs no network, unless nsswitch.conf
/// puts another service first.
pub fn is_in_hosts_file(host: &CStr, family: c_int) -> bool {
    let text = std::fs::read("/etc/hosts").unwrap_or_default();
    is_in_hosts(&text, host.to_bytes(), family)
}

fn is_in_hosts(text: &[u8], host: &[u8], family: c_int) -> bool {
    text.split(|byte| *byte == b'\n').any(|line| {
        let line = line.split(|byte| *byte == b'#').next().unwrap_or_default();
        let mut words = line
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        let is_of_family = words.next().is_some_and(|address| match family {
            libc::AF_INET => !address.contains(&b':'),
            libc::AF_INET6 => address.contains(&b':'),
            _ => true,
        });
        is_of_family && words.any(|name| name.eq_ignore_ascii_case(host))
    })
}

/// gai_strerror(3).
pub fn error_message(code: c_int) -> String {
    // SAFETY: the string is never freed.
    let text = unsafe { CStr::from_ptr(libc::gai_strerror(code)) };
    text.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::{Hints, error_message, getaddrinfo, is_in_hosts};

    #[test]
    fn a_name_of_the_hosts_file_is_known_for_the_families_of_its_addresses() {
        let text = b"127.0.0.1\tlocalhost four # five\n#127.0.0.1 six\n\n::1 localhost seven\n\xff";
        let found = |name: &str| {
            [libc::AF_UNSPEC, libc::AF_INET, libc::AF_INET6]
                .map(|family| is_in_hosts(text, name.as_bytes(), family))
        };
        assert_eq!(found("LocalHost"), [true; 3]);
        assert_eq!(found("four"), [true, true, false]);
        assert_eq!(found("seven"), [true, false, true]);
        for name in ["five", "six", "127.0.0.1", "local", ""] {
            assert_eq!(found(name), [false; 3], "{name}");
        }
    }

    #[test]
    fn a_numeric_host_needs_no_resolver() {
        let hints = Hints {
            family: libc::AF_UNSPEC,
            socktype: libc::SOCK_STREAM,
            protocol: 0,
            flags: libc::AI_NUMERICHOST,
        };
        let found = getaddrinfo(Some(c"127.0.0.1"), Some(c"80"), &hints).unwrap();
        assert_eq!(found[0].family, libc::AF_INET);
        let refused = getaddrinfo(Some(c"example.invalid"), None, &hints).unwrap_err();
        assert_eq!(refused.code, libc::EAI_NONAME);
        assert!(!error_message(refused.code).is_empty());
    }
}
