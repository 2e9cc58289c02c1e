//! A set in another loop. Each adapter asks the set, when that loop says that it is readable, until
//! the set has nothing more.

#[cfg(feature = "async-io")]
pub mod async_io;
#[cfg(feature = "mio")]
mod mio;
#[cfg(all(feature = "futures-core", any(feature = "tokio", feature = "async-io")))]
mod stream;
#[cfg(feature = "tokio")]
pub mod tokio;
