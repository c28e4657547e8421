//! The program of a function: the cloud runs it as `bootstrap`.

#![forbid(unsafe_code)]

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    tidemark_functions::program::run()
}
