//! Names: getaddrinfo(3) on the core's pool. What comes of it is Ruby's affair, see `lib/reactor/names.rb`.

use std::{cell::RefCell, ffi::CString, net::IpAddr};

use magnus::{
    Error, ExceptionClass, RArray, RClass, RString, Ruby, TryConvert, TypedData, Value, prelude::*,
    typed_data::Obj,
};
use reactor::{Job, Outcome, Token, WorkClass};

use crate::{
    blocking, convert,
    raw::{self, Address, Hints, Unresolved},
    selector::{Entry, Selector},
};

type Answer = Result<Vec<Address>, Unresolved>;

/// `Reactor::Lookup`: a question to the resolver that is on its way.
///
/// Whoever asked may leave at any time: what has not begun never will, what has goes on to its end, unheard. All memory
/// it needs is its own.
#[derive(TypedData)]
#[magnus(class = "Reactor::Lookup", free_immediately)]
pub struct Lookup {
    progress: RefCell<Progress>,
}

enum Progress {
    Going(Job<Answer>),
    Ended(Outcome<Answer>),
    Cancelled,
}

impl magnus::DataTypeFunctions for Lookup {}

/// `lookup(host, service, family, socktype, protocol, flags)`: asks, and goes on. A host and a service that are a String
/// or nil, and getaddrinfo(3)'s own numbers.
///
/// What needs no network is answered at once: no host, a numeric one.
pub fn lookup(ruby: &Ruby, this: Obj<Selector>, question: &[Value]) -> Result<Obj<Lookup>, Error> {
    let [host, service, family, socktype, protocol, flags] = question else {
        let message = format!(
            "wrong number of arguments (given {}, expected 6)",
            question.len()
        );
        return Err(Error::new(ruby.exception_arg_error(), message));
    };
    let (host, service) = (text(ruby, *host)?, text(ruby, *service)?);
    let hints = Hints {
        family: i32::try_convert(*family)?,
        socktype: i32::try_convert(*socktype)?,
        protocol: i32::try_convert(*protocol)?,
        flags: i32::try_convert(*flags)?,
    };
    let local = host.as_ref().is_none_or(is_numeric);
    let ask = move || raw::getaddrinfo(host.as_deref(), service.as_deref(), &hints);
    let progress = match Selector::enter(ruby, &this)? {
        Entry::Usable(visit) if !local => {
            blocking::await_room(&visit, 0)?;
            let job = blocking::begin(&visit, 0, WorkClass::Network, ask)?;
            // Nobody waits for it yet; whoever does, will redirect it.
            visit.selector.inner.borrow_mut().fibers.finish(visit.slot);
            Progress::Going(job)
        }
        _ => Progress::Ended(Outcome::Done(ask())),
    };
    Ok(ruby.obj_wrap(Lookup {
        progress: RefCell::new(progress),
    }))
}

fn text(ruby: &Ruby, value: Value) -> Result<Option<CString>, Error> {
    let Some(string) = Option::<RString>::try_convert(value)? else {
        return Ok(None);
    };
    let text = CString::new(raw::bytes(string));
    text.map(Some).map_err(|_| {
        let message = "string contains null byte";
        Error::new(ruby.exception_arg_error(), message)
    })
}

/// An address, with or without a zone.
fn is_numeric(host: &CString) -> bool {
    let host = host.to_str().unwrap_or_default();
    let address = host.split('%').next().unwrap_or_default();
    address.parse::<IpAddr>().is_ok()
}

impl Lookup {
    /// `ended?`
    pub fn is_ended(&self) -> bool {
        let mut progress = self.progress.borrow_mut();
        if let Progress::Going(job) = &mut *progress {
            if let Some(outcome) = job.take() {
                *progress = Progress::Ended(outcome);
            }
        }
        !matches!(*progress, Progress::Going(_))
    }

    /// `cancel`
    pub fn cancel(&self) {
        let before = self.progress.replace(Progress::Cancelled);
        drop(before);
    }

    /// The end will be told under this token.
    pub fn redirect(&self, token: Token) {
        if let Progress::Going(job) = &mut *self.progress.borrow_mut() {
            job.redirect(token);
        }
    }

    /// `answer(asker)`: an Array of [address, family, socktype, protocol], in getaddrinfo(3)'s order; nil as long as there
    /// is none. Raises Socket::ResolutionError or, for EAI_SYSTEM, what errno said; the message begins with `asker`.
    pub fn answer(ruby: &Ruby, this: Obj<Self>, asker: String) -> Result<Option<RArray>, Error> {
        if !this.is_ended() {
            return Ok(None);
        }
        let answer = match &*this.progress.borrow() {
            Progress::Ended(Outcome::Done(answer)) => answer.clone(),
            Progress::Ended(Outcome::Panicked(message)) => {
                return Err(Error::new(ruby.exception_runtime_error(), message.clone()));
            }
            _ => {
                let message = "the scheduler was closed";
                return Err(Error::new(ruby.exception_runtime_error(), message));
            }
        };
        let addresses = answer.map_err(|error| unresolved(ruby, &asker, error))?;
        let found = ruby.ary_new_capa(addresses.len());
        for address in addresses {
            found.push((
                ruby.str_from_slice(&address.bytes),
                address.family,
                address.socktype,
                address.protocol,
            ))?;
        }
        Ok(Some(found))
    }
}

/// As Ruby's own: Socket::ResolutionError with its error_code, or an Errno.
fn unresolved(ruby: &Ruby, asker: &str, error: Unresolved) -> Error {
    if error.code == libc::EAI_SYSTEM && error.errno != 0 {
        return convert::errno(ruby, error.errno, Some(asker));
    }
    let made = || {
        let socket: RClass = ruby.class_object().const_get("Socket")?;
        let class: ExceptionClass = socket.const_get("ResolutionError")?;
        let message = format!("{asker}: {}", raw::gai_message(error.code));
        let exception = class.new_instance((ruby.str_from_slice(message.as_bytes()),))?;
        raw::set_hidden(
            exception.as_value(),
            c"error_code",
            ruby.integer_from_i64(error.code.into()).as_value(),
        )?;
        Ok(exception.into())
    };
    made().unwrap_or_else(|error| error)
}
