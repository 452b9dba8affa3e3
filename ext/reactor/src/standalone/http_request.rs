//! `Reactor::Internal.parse_request(bytes, env)`: parses the head of an HTTP/1 request, with httparse, into a Rack
//! environment.

use httparse::{EMPTY_HEADER, Error as ParseError, Header, Request, Status};
use magnus::{Error, RHash, RString, Ruby};

use crate::ruby::{convert, object::interned};

/// The maximum number of headers in a request.
const MAX_HEADERS: usize = 100;

/// The response status for a refused request.
type Refusal = i64;

const BAD_REQUEST: Refusal = 400;
const TOO_LARGE: Refusal = 431;
const NOT_IMPLEMENTED: Refusal = 501;
const WRONG_VERSION: Refusal = 505;

/// Parses the head of the first request in `bytes` into `env`. Returns the length of the head, 0 if it is incomplete, or a
/// negative status if it is refused. `env` is changed only if the head is complete and valid.
///
/// A head is refused if two parsers could disagree on where the request's body ends or which host it is for (RFC 9112,
/// 11.2): if it has more than one Content-Length, Transfer-Encoding or Host, or both Content-Length and
/// Transfer-Encoding.
pub fn parse_request(ruby: &Ruby, bytes: RString, env: RHash) -> Result<i64, Error> {
    let bytes = convert::bytes(bytes);
    match as_http_1_1(&bytes) {
        Some(bytes) => parse_bytes(ruby, &bytes, env),
        None => parse_bytes(ruby, &bytes, env),
    }
}

fn parse_bytes(ruby: &Ruby, bytes: &[u8], env: RHash) -> Result<i64, Error> {
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    let mut request = Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) => return Ok(0),
        Err(ParseError::Version) => return Ok(-WRONG_VERSION),
        Err(ParseError::TooManyHeaders) => return Ok(-TOO_LARGE),
        Err(_) => return Ok(-BAD_REQUEST),
    };
    match Head::new(&request) {
        Ok(head) => {
            head.store(ruby, env)?;
            Ok(length as i64)
        }
        Err(status) => Ok(-status),
    }
}

/// The bytes as those of a request of HTTP/1.1 if their version is a later HTTP/1 (RFC 9110, 2.5), which the parser does not
/// know.
#[inline]
fn as_http_1_1(bytes: &[u8]) -> Option<Vec<u8>> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    let (minor, before) = line.split_last()?;
    if !before.ends_with(b" HTTP/1.") || !(b'2'..=b'9').contains(minor) {
        return None;
    }
    let mut bytes = bytes.to_vec();
    bytes[before.len()] = b'1';
    Some(bytes)
}

/// A head that has passed the checks.
struct Head<'a> {
    method: &'a str,
    target: &'a str,
    path: &'a str,
    query: &'a str,
    minor: u8,
    host: Option<&'a str>,
    headers: &'a [Header<'a>],
}

impl<'a> Head<'a> {
    fn new(request: &'a Request<'_, '_>) -> Result<Self, Refusal> {
        let method = request.method.ok_or(BAD_REQUEST)?;
        let target = request.path.ok_or(BAD_REQUEST)?;
        let minor = request.version.ok_or(BAD_REQUEST)?;
        let headers = &*request.headers;
        check_body(headers, minor)?;
        let (authority, rest) = split_target(method, target)?;
        let host = match (authority, only(headers, "host")?) {
            (_, None) if minor > 0 => return Err(BAD_REQUEST),
            (Some(authority), _) => Some(authority),
            (None, Some(host)) => Some(std::str::from_utf8(host).map_err(|_| BAD_REQUEST)?),
            (None, None) => None,
        };
        if !host.is_none_or(is_authority) {
            return Err(BAD_REQUEST);
        }
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        Ok(Self {
            method,
            target,
            path: if path.is_empty() { "/" } else { path },
            query,
            minor,
            host: host.filter(|host| !host.is_empty()),
            headers,
        })
    }

    fn store(&self, ruby: &Ruby, env: RHash) -> Result<(), Error> {
        let text = |text: &str| ruby.str_from_slice(text.as_bytes());
        env.aset(
            interned(b"REQUEST_METHOD"),
            interned(self.method.as_bytes()),
        )?;
        env.aset(interned(b"REQUEST_URI"), text(self.target))?;
        env.aset(interned(b"PATH_INFO"), text(self.path))?;
        env.aset(interned(b"QUERY_STRING"), text(self.query))?;
        let version: &[u8] = if self.minor == 0 {
            b"HTTP/1.0"
        } else {
            b"HTTP/1.1"
        };
        env.aset(interned(b"SERVER_PROTOCOL"), interned(version))?;
        let is_host = |header: &&Header| header.name.eq_ignore_ascii_case("host");
        for header in self.headers.iter().filter(|header| !is_host(header)) {
            store_header(ruby, env, header)?;
        }
        let Some(host) = self.host else { return Ok(()) };
        let (name, port) = split_port(host);
        env.aset(interned(b"HTTP_HOST"), text(host))?;
        env.aset(interned(b"SERVER_NAME"), text(name))?;
        if !port.is_empty() {
            env.aset(interned(b"SERVER_PORT"), text(port))?;
        }
        Ok(())
    }
}

/// Refuses heads that leave open where the body ends.
fn check_body(headers: &[Header], minor: u8) -> Result<(), Refusal> {
    let length = only(headers, "content-length")?;
    let encoding = only(headers, "transfer-encoding")?;
    let is_number = |text: &[u8]| {
        let zeros = text.iter().take_while(|byte| **byte == b'0').count();
        !text.is_empty() && text.len() - zeros <= 18 && text.iter().all(u8::is_ascii_digit)
    };
    match (length, encoding) {
        (Some(_), Some(_)) => Err(BAD_REQUEST),
        (Some(length), None) if !is_number(length) => Err(BAD_REQUEST),
        (None, Some(_)) if minor == 0 => Err(BAD_REQUEST),
        (None, Some(encoding)) if !encoding.eq_ignore_ascii_case(b"chunked") => {
            Err(NOT_IMPLEMENTED)
        }
        _ => Ok(()),
    }
}

/// The value of a header that may occur only once.
fn only<'a>(headers: &[Header<'a>], name: &str) -> Result<Option<&'a [u8]>, Refusal> {
    let mut found = headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case(name));
    match (found.next(), found.next()) {
        (_, Some(_)) => Err(BAD_REQUEST),
        (header, None) => Ok(header.map(|header| header.value)),
    }
}

/// The authority of an absolute target, and the path with the query. The authority overrides Host (RFC 9112, 3.2.2).
fn split_target<'a>(method: &str, target: &'a str) -> Result<(Option<&'a str>, &'a str), Refusal> {
    if method == "CONNECT" {
        return Err(NOT_IMPLEMENTED);
    }
    if target.contains('#') {
        return Err(BAD_REQUEST);
    }
    if target.starts_with('/') || (target == "*" && method == "OPTIONS") {
        return Ok((None, target));
    }
    let scheme = ["http://", "https://"]
        .into_iter()
        .find(|scheme| {
            target
                .get(..scheme.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        })
        .ok_or(BAD_REQUEST)?;
    let rest = &target[scheme.len()..];
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    match &rest[..end] {
        "" => Err(BAD_REQUEST),
        authority => Ok((Some(authority), &rest[end..])),
    }
}

/// Whether this is a host and optional port, judging by its characters.
fn is_authority(text: &str) -> bool {
    let (host, port) = split_port(text);
    let is_literal = host.starts_with('[') && host.ends_with(']');
    let is_part = |byte: u8| {
        byte.is_ascii_alphanumeric()
            || b"-._~%!$&'()*+,;=".contains(&byte)
            || (is_literal && b"[]:".contains(&byte))
    };
    host.bytes().all(is_part)
        && port.bytes().all(|byte| byte.is_ascii_digit())
        && (port.is_empty() || !host.is_empty())
}

/// The host, with brackets if it is an IPv6 address, and the port, or "" if there is none.
fn split_port(authority: &str) -> (&str, &str) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port),
        _ => (authority, ""),
    }
}

/// Stores a header under its Rack name. Headers with an underscore are dropped, because `X_A` would pass for `X-A`.
fn store_header(ruby: &Ruby, env: RHash, header: &Header) -> Result<(), Error> {
    if header.name.contains('_') {
        return Ok(());
    }
    let mut name = Vec::with_capacity(64);
    name.extend_from_slice(b"HTTP_");
    name.extend(header.name.bytes().map(|byte| {
        if byte == b'-' {
            b'_'
        } else {
            byte.to_ascii_uppercase()
        }
    }));
    let name = match &name[5..] {
        bare @ (b"CONTENT_TYPE" | b"CONTENT_LENGTH") => bare,
        _ => &name,
    };
    let key = interned(name);
    let value = ruby.str_from_slice(header.value);
    if let Some(earlier) = env.get(key).and_then(RString::from_value) {
        let separator: &[u8] = if name == b"HTTP_COOKIE" { b"; " } else { b", " };
        let joined = [&convert::bytes(earlier), separator, header.value].concat();
        return env.aset(key, ruby.str_from_slice(&joined));
    }
    env.aset(key, value)
}
