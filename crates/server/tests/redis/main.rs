//! RESP from outside: a client's bytes in, the server's bytes out.

#[cfg(test)]
mod clients;
#[cfg(test)]
mod commands;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod info;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod login;
#[cfg(test)]
mod notation;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod scan;
#[cfg(test)]
mod script_transactions;
#[cfg(test)]
mod scripts;
#[cfg(test)]
mod throttle;
#[cfg(test)]
mod transactions;
#[cfg(test)]
mod writes;
