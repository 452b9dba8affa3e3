//! An echo server and its clients in one thread, on the executor of `executor.rs`.
//!
//! ```text
//! executor
//! ```
//!
//! Prints the answers of the clients, in the order in which they came.

mod executor;

use std::{
    cell::RefCell,
    error::Error,
    io,
    net::{TcpListener, TcpStream},
    rc::Rc,
    time::Duration,
};

use executor::{Executor, Io};

fn main() -> Result<(), Box<dyn Error>> {
    println!("{:?}", serve_ourselves(10)?);
    Ok(())
}

/// Runs an echo server and `clients` clients, which send after different delays. Returns their answers in the order in which
/// they came.
pub fn serve_ourselves(clients: u64) -> io::Result<Vec<String>> {
    let executor = Executor::new()?;
    let answers = Rc::new(RefCell::new(Vec::new()));
    let (listener, address) = executor.listen()?;
    executor.spawn(serve(executor.clone(), listener, clients));
    for number in 0..clients {
        let (client, answers) = (executor.clone(), Rc::clone(&answers));
        executor.spawn(async move {
            client
                .sleep(Duration::from_millis(5 * (clients - number)))
                .await;
            let mut stream = client.attach(TcpStream::connect(address)?)?;
            stream
                .write_all(format!("client {number}").as_bytes())
                .await?;
            let mut buffer = [0; 16];
            let count = stream.read(&mut buffer).await?;
            answers
                .borrow_mut()
                .push(String::from_utf8_lossy(&buffer[..count]).into());
            Ok(())
        });
    }
    executor.run()?;
    Ok(answers.take())
}

async fn serve(executor: Executor, mut listener: Io<TcpListener>, clients: u64) -> io::Result<()> {
    for _ in 0..clients {
        let mut stream = listener.accept().await?;
        executor.spawn(async move {
            let mut buffer = [0; 16];
            loop {
                match stream.read(&mut buffer).await? {
                    0 => return Ok(()),
                    count => stream.write_all(&buffer[..count]).await?,
                }
            }
        });
    }
    Ok(())
}
