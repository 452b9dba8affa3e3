//! Another loop inside the reactor: the descriptor of its queue is a source.

use std::{
    io::{self, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

use polling::{Event, Poller};
use reactor::{Attempt, Events, Interest, Reactor, Source, Token, Wait};

/// Bytes come to a socket that only the guest watches. Each time the reactor reports the guest, the guest is polled. Returns
/// the keys that it reports.
pub fn run() -> io::Result<Vec<usize>> {
    let guest = Source::new(Poller::new()?);
    let (theirs, mut to_theirs) = UnixStream::pair()?;
    let (mut reactor, mut events) = (Reactor::open(None)?, Events::new());
    let (mut keys, mut reported) = (Vec::new(), polling::Events::new());
    // SAFETY: the stream outlives the guest, and so its registration.
    #[expect(unsafe_code, reason = "the interface of polling requires it")]
    unsafe {
        guest.get_ref().add(&theirs, Event::none(0))?;
    }
    for key in 1..=3 {
        guest.get_ref().modify(&theirs, Event::readable(key))?;
        let wait = guest.wait(&mut reactor, Interest::READABLE, Token::new(7, 0))?;
        assert!(
            matches!(wait, Wait::Pending(_)),
            "a queue can be waited for"
        );
        to_theirs.write_all(b"x")?;
        events.clear();
        while events.is_empty() {
            reactor.turn(&mut events, None)?;
        }
        reported.clear();
        guest.get_ref().wait(&mut reported, Some(Duration::ZERO))?;
        keys.extend(reported.iter().map(|event| event.key));
        // The guest reports each key once, so its queue is empty now.
        guest.attempted(&mut reactor, Interest::READABLE, Attempt::WouldBlock);
    }
    Ok(keys)
}
