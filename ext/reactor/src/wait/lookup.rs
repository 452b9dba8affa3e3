//! Waiting for name resolution: getaddrinfo(3) on the core's pool. `lib/` turns the result into addresses.

use std::{
    cell::RefCell,
    ffi::{CStr, CString},
    net::IpAddr,
};

use magnus::{Error, RArray, RString, Ruby, TypedData, typed_data::Obj};
use reactor::{
    Reactor, Token,
    pool::{Job, Outcome, WorkClass},
};
use reactor_scheduler::system::getaddrinfo::{
    Address, Hints, Unresolved, error_message, getaddrinfo, is_in_hosts_file,
};

use crate::{
    control::{hook_scope::HookScope, scheduler::Scheduler},
    ruby::{
        convert::bytes,
        error::{argument_error, errno, resolution_error, runtime_error},
        panics,
    },
    wait::work,
};

type Answer = Result<Vec<Address>, Unresolved>;

/// `Reactor::Lookup`: a resolver query.
///
/// The fiber that made the query may leave at any time. If no worker has begun the query, it is then dropped; otherwise
/// it runs to completion, and its result is dropped. A query owns all the memory it needs.
#[derive(TypedData)]
#[magnus(class = "Reactor::Lookup", free_immediately)]
pub struct Lookup {
    progress: RefCell<Progress>,
}

enum Progress {
    Pending(Job<Answer>),
    Ended(Outcome<Answer>),
}

impl magnus::DataTypeFunctions for Lookup {
    fn free(self: Box<Self>) {
        _ = panics::catch("end of a lookup", || drop(self));
    }
}

/// `lookup(host, service, family, socktype, protocol, flags)`: starts a query without waiting. Host and service are Strings
/// or nil; the rest are getaddrinfo(3)'s own numbers.
///
/// A query without a host, or with a numeric one, is answered at once, because it needs no network.
pub fn lookup(
    this: Obj<Scheduler>,
    host: Option<RString>,
    service: Option<RString>,
    family: i32,
    socktype: i32,
    protocol: i32,
    flags: i32,
) -> Result<Obj<Lookup>, Error> {
    let ruby = &Ruby::get_with(this);
    let (host, service) = (text(host)?, text(service)?);
    let hints = Hints {
        family,
        socktype,
        protocol,
        flags,
    };
    let scope = HookScope::enter(ruby, &this)?;
    let progress = match host.as_ref().is_none_or(is_numeric) {
        false => {
            let class = class_of(&scope, host.as_deref(), hints.family);
            let ask = move || getaddrinfo(host.as_deref(), service.as_deref(), &hints);
            let job = work::begin_work(&scope, class, ask)?;
            // No fiber waits for the query yet; a later wait redirects its notification.
            let mut state = scope.scheduler.state_mut();
            let wait = state.fibers.wait_token(scope.slot);
            state.fibers.end_wait(wait);
            drop(state);
            Progress::Pending(job)
        }
        true => {
            let answer = getaddrinfo(host.as_deref(), service.as_deref(), &hints);
            Progress::Ended(Outcome::Done(answer))
        }
    };
    Ok(ruby.obj_wrap(Lookup {
        progress: RefCell::new(progress),
    }))
}

/// A name in /etc/hosts does not queue behind names that need nameservers. The file only selects the queue: the answer
/// comes from the resolver.
fn class_of(scope: &HookScope, host: Option<&CStr>, family: i32) -> WorkClass {
    let reactor = &scope.scheduler.state().event_loop.reactor;
    let is_busy = |reactor: &Reactor| reactor.pool().is_busy(WorkClass::Network);
    let would_wait = reactor.as_ref().is_some_and(is_busy);
    match host {
        Some(host) if would_wait && is_in_hosts_file(host, family) => WorkClass::Disk,
        _ => WorkClass::Network,
    }
}

fn text(string: Option<RString>) -> Result<Option<CString>, Error> {
    let text = string.map(|string| CString::new(bytes(string)));
    text.transpose()
        .map_err(|_| argument_error("string contains null byte"))
}

/// Whether the host is an address, with or without a zone.
fn is_numeric(host: &CString) -> bool {
    let host = host.to_str().unwrap_or_default();
    let address = host.split('%').next().unwrap_or_default();
    address.parse::<IpAddr>().is_ok()
}

impl Lookup {
    /// `ended?`
    pub fn is_ended(&self) -> bool {
        let mut progress = self.progress.borrow_mut();
        if let Progress::Pending(job) = &mut *progress {
            if let Some(outcome) = job.take() {
                *progress = Progress::Ended(outcome);
            }
        }
        !matches!(*progress, Progress::Pending(_))
    }

    /// `cancel`
    pub fn cancel(&self) {
        let before = self.progress.replace(Progress::Ended(Outcome::Dropped));
        drop(before);
    }

    /// Changes the token that is notified when the query ends.
    pub fn redirect(&self, token: Token) {
        if let Progress::Pending(job) = &mut *self.progress.borrow_mut() {
            job.redirect(token);
        }
    }

    /// `answer(caller)`: an Array of [address, family, socktype, protocol], in getaddrinfo(3)'s order; nil while there
    /// is no answer. Raises Socket::ResolutionError or, for EAI_SYSTEM, the error in errno; the message begins with
    /// `caller`.
    pub fn answer(ruby: &Ruby, this: Obj<Self>, caller: String) -> Result<Option<RArray>, Error> {
        if !this.is_ended() {
            return Ok(None);
        }
        let answer = match &*this.progress.borrow() {
            Progress::Ended(Outcome::Done(answer)) => answer.clone(),
            Progress::Ended(Outcome::Panicked(message)) => {
                return Err(runtime_error(message.clone()));
            }
            _ => return Err(runtime_error("the scheduler was closed")),
        };
        let addresses = answer.map_err(|error| unresolved(&caller, error))?;
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

/// The error as Ruby raises it: Socket::ResolutionError with its error_code, or an Errno. The message begins with `caller`.
#[cold]
fn unresolved(caller: &str, error: Unresolved) -> Error {
    if error.errno != 0 {
        return errno(error.errno, Some(caller));
    }
    let message = format!("{caller}: {}", error_message(error.code));
    resolution_error(&message, error.code)
}
