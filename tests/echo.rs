//! examples/echo.rs serves clients and returns.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    thread,
};

#[allow(dead_code, reason = "its main is not called here")]
#[path = "../examples/echo.rs"]
mod echo;

#[test]
fn a_few_clients_are_echoed_and_the_server_returns() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || echo::serve(listener, 8));
    let clients: Vec<_> = (0..8)
        .map(|number: u8| {
            thread::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                let mut sender = stream.try_clone().unwrap();
                // More bytes than all socket buffers hold, so that the server waits in both directions.
                let sent = vec![number; 4 << 20];
                let copy = sent.clone();
                let writer = thread::spawn(move || {
                    sender.write_all(&copy).unwrap();
                    sender.shutdown(Shutdown::Write).unwrap();
                });
                let mut received = Vec::new();
                stream.read_to_end(&mut received).unwrap();
                writer.join().unwrap();
                assert_eq!(received.len(), sent.len());
                assert!(received == sent);
            })
        })
        .collect();
    clients
        .into_iter()
        .for_each(|client| client.join().unwrap());
    server.join().unwrap().unwrap();
}
