//! The reactor as a source of another loop, and another loop as a source of the reactor.
//!
//! ```text
//! loops
//! ```
//!
//! Prints the events of each pair. Unix only: an IOCP queue cannot be polled.

#[cfg(target_os = "linux")]
pub mod in_epoll;
#[cfg(unix)]
pub mod in_tokio;
#[cfg(unix)]
pub mod inside;

fn main() -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    println!("in epoll: {:?}", in_epoll::run()?);
    #[cfg(unix)]
    println!("in tokio: {:?}", in_tokio::run()?);
    #[cfg(unix)]
    println!("inside: {:?}", inside::run()?);
    Ok(())
}
