//! The server from outside: a client's bytes in, the server's bytes out.

#[cfg(test)]
mod buffers;
#[cfg(test)]
mod charged;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod descriptors;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod flash;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod login;
#[cfg(test)]
mod long_values;
#[cfg(test)]
mod memcached;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod parts;
#[cfg(test)]
mod process;
#[cfg(test)]
mod remote;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod tenants;
#[cfg(test)]
mod throttle;
#[cfg(test)]
mod transcript;
#[cfg(test)]
mod waiting;
