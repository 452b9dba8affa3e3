//! The operations that the ring carries out.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{Read, Write},
    os::fd::AsRawFd,
};

use reactor::{Backend, Driver, Events, Interest, Operation, OperationId, Registration, Token};
use reactor_faults::marks::library;
use rustix::pipe::pipe;

use super::{World, number, pair, print, report, retry};

fn open(world: &World) -> Box<dyn Driver> {
    Backend::open(Some(world.backend)).unwrap().1
}

fn start(
    driver: &mut Box<dyn Driver>,
    on: &impl AsRawFd,
    operation: Operation<'_>,
    token: u32,
) -> OperationId {
    let operations = driver.operations().unwrap();
    library(|| operations.start(number(on), operation, Token::new(token, 0))).unwrap()
}

/// Waits for the outcome. It reports an error, as the caller of a system call would.
fn finish(driver: &mut Box<dyn Driver>, id: OperationId) -> usize {
    let operations = driver.operations().unwrap();
    retry(|| operations.wait(id));
    library(|| operations.take(id)).unwrap().unwrap()
}

pub fn transfers(world: &World) {
    let mut driver = open(world);
    let (ours, mut theirs) = pair();
    let first = start(&mut driver, &ours, Operation::Send(b"first "), 1);
    let second = start(&mut driver, &ours, Operation::Send(b"second"), 2);
    retry(|| driver.operations().unwrap().submit());
    print(&format!("sent {}", finish(&mut driver, first)));
    print(&format!("sent {}", finish(&mut driver, second)));
    let mut bytes = [0; 12];
    theirs.read_exact(&mut bytes).unwrap();
    print(&String::from_utf8_lossy(&bytes));
    library(|| drop(driver));
}

/// Outcomes and edges that come in the same polls.
pub fn with_events(world: &World) {
    let mut driver = open(world);
    let (ours, mut theirs) = pair();
    let (other, mut peer) = pair();
    for round in 0..2 {
        let mut reported = BTreeSet::new();
        let registered = retry(|| {
            let token = Token::new(100, round);
            driver.register(number(&other), token, Interest::READABLE, false)
        });
        if registered == Registration::Unpollable {
            reported.insert(100); // The answer to EPERM: always ready.
        }
        peer.write_all(b"x").unwrap();
        let send = start(&mut driver, &ours, Operation::Send(b"y"), 1);
        let mut events = Events::new();
        while reported.len() < 2 {
            match library(|| driver.poll(&mut events, None)) {
                Ok(()) => reported.extend(events.iter().map(|event| event.token.index())),
                Err(error) => report(&error),
            }
        }
        print(&format!("reported {reported:?}"));
        let sent = finish(&mut driver, send);
        print(&format!("sent {sent}"));
        theirs.read_exact(&mut [0]).unwrap();
        (&other).read_exact(&mut [0]).unwrap();
    }
    library(|| drop(driver));
}

pub fn files(world: &World) {
    let mut driver = open(world);
    let place = std::env::temp_dir().join(format!("reactor-faults-{}", std::process::id()));
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(true);
    let mut file = options.open(&place).unwrap();
    file.write_all(b"contents").unwrap();
    for operation in [Operation::SyncData, Operation::Sync, Operation::Read(0, 8)] {
        let id = start(&mut driver, &file, operation, 1);
        let mut events = Events::new();
        while events.is_empty() {
            retry(|| driver.poll(&mut events, None));
        }
        print(&format!("{}", finish(&mut driver, id)));
    }
    std::fs::remove_file(place).unwrap();
    library(|| drop(driver));
}

/// Operations that are abandoned in flight, and a driver that is dropped with one in flight: neither takes bytes later.
pub fn abandoned(world: &World) {
    let mut driver = open(world);
    let (reader, writer) = pipe().unwrap();
    let id = start(&mut driver, &reader, Operation::Read(0, 10), 1);
    retry(|| driver.operations().unwrap().submit());
    library(|| driver.operations().unwrap().abandon(id));
    for token in 2..5 {
        start(&mut driver, &reader, Operation::Read(0, 10), token);
    }
    retry(|| driver.operations().unwrap().submit());
    library(|| drop(driver));
    rustix::io::write(&writer, b"kept").unwrap();
    let mut bytes = [0; 10];
    let count = rustix::io::read(&reader, &mut bytes).unwrap();
    print(&String::from_utf8_lossy(&bytes[..count]));
}

/// More outcomes at once than the completion queue holds.
pub fn overflow(world: &World) {
    const MANY: u32 = 1500;
    let mut driver = open(world);
    let (ours, theirs) = pair();
    ours.set_nonblocking(false).unwrap();
    let (reader, writer) = pipe().unwrap();
    for token in 0..MANY {
        start(&mut driver, &reader, Operation::Read(0, 1), token);
    }
    retry(|| driver.operations().unwrap().submit());
    drop((writer, ours, theirs));
    let mut reported = BTreeSet::new();
    let mut events = Events::new();
    while reported.len() < MANY as usize {
        retry(|| driver.poll(&mut events, None));
        reported.extend(events.iter().map(|event| event.token.index()));
    }
    print(&format!("reported {}", reported.len()));
    library(|| drop(driver));
}
