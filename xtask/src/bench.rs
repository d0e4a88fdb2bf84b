//! b
use anyhow::Result;
#[derive(clap::Subcommand)]
pub(crate) enum Bench {
    /// l
    Lab,
}
pub(crate) fn run(_c: &Bench) -> Result<()> { Ok(()) }
