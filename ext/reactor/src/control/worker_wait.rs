//! Workers that wait for what the driver does not poll: pipes and consoles of Windows.

use std::{io, sync::Arc};

use reactor::{Interest, Job, Outcome, Pool, Ready, Refused, Token, WorkClass};
use reactor_scheduler::{
    state::{unpolled::WorkerWait, wait_registration::Watch},
    system::unpolled::Wait,
};

#[derive(Debug)]
struct Waiting {
    wait: Arc<Wait>,
    job: Job<io::Result<()>>,
    interest: Interest,
}

/// As [`BeginWorkerWait`](reactor_scheduler::state::unpolled::BeginWorkerWait).
pub fn begin(
    pool: &mut Pool,
    watch: Watch,
    token: Token,
    refused: io::Error,
) -> io::Result<Option<Box<dyn WorkerWait>>> {
    let Watch { interest, .. } = watch;
    let Some(wait) = Wait::new(watch.descriptor, interest, refused)? else {
        return Ok(None);
    };
    let wait = Arc::new(wait);
    let blocked = Arc::clone(&wait);
    let job = pool.submit(token, WorkClass::Network, move || blocked.block());
    let job = job.map_err(|refused| match refused {
        Refused::NoThread(error) => error,
        refused => io::Error::other(refused),
    })?;
    let waiting = Waiting {
        wait,
        job,
        interest,
    };
    Ok(Some(Box::new(waiting)))
}

impl WorkerWait for Waiting {
    fn ready(&mut self) -> Ready {
        match self.job.take() {
            None => Ready::EMPTY,
            Some(Outcome::Done(Ok(()))) => self.interest.into(),
            Some(_) => Ready::ERROR, // the transfer meets it
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.wait.end();
    }
}
