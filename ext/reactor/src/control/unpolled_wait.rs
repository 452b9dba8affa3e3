//! Workers that wait where the driver cannot poll: for pipes, consoles and urgent data on Windows.

use std::{io, sync::Arc};

use reactor::{
    Ready, Token,
    pool::{Job, Outcome, Pool, WorkClass},
};
use reactor_scheduler::{
    state::{unpolled::WorkerWait, wait_registration::Watch},
    system::unpolled::BlockingWait,
};

#[derive(Debug)]
struct Waiting {
    wait: Arc<BlockingWait>,
    job: Job<io::Result<Ready>>,
}

/// See [`BeginWorkerWait`](reactor_scheduler::state::unpolled::BeginWorkerWait).
pub fn begin(
    pool: &mut Pool,
    watch: Watch,
    token: Token,
    refused: io::Error,
) -> io::Result<Option<Box<dyn WorkerWait>>> {
    let Some(wait) = BlockingWait::new(watch.descriptor, watch.interest, refused)? else {
        return Ok(None);
    };
    let wait = Arc::new(wait);
    let blocked = Arc::clone(&wait);
    let job = pool.submit(token, WorkClass::Network, move || blocked.block())?;
    Ok(Some(Box::new(Waiting { wait, job })))
}

impl WorkerWait for Waiting {
    fn ready(&mut self) -> Ready {
        match self.job.take() {
            None => Ready::EMPTY,
            Some(Outcome::Done(Ok(ready))) => ready,
            Some(_) => Ready::ERROR, // the transfer will get the error
        }
    }

    fn end(&mut self) {
        self.wait.end();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.wait.end();
    }
}
