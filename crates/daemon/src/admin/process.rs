//! Metrics of this process, under the names that every Prometheus client uses.

use std::{fmt, fs};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

/// `sysconf(_SC_CLK_TCK)`, which Linux fixes at 100 for user space.
const TICKS_PER_SECOND: f64 = 100.0;

/// Reads `/proc` whenever metrics are collected.
#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(facts) = Facts::read() else { return Ok(()) };
        let cpu = ConstCounter::new(facts.cpu_seconds);
        let help = "Time that this process computed";
        let described =
            encoder.encode_descriptor("process_cpu_seconds", help, None, cpu.metric_type())?;
        cpu.encode(described)?;
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Memory of this process", facts.resident_bytes),
            ("process_open_fds", "Files and sockets that are open", facts.open_files),
            ("process_threads", "Threads of this process", facts.threads),
        ] {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

struct Facts {
    cpu_seconds: f64,
    resident_bytes: i64,
    open_files: i64,
    threads: i64,
}

impl Facts {
    fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // The name of the program is in brackets and may hold anything.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split_whitespace().collect();
        let ticks: f64 =
            fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let kilobytes: i64 = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .ok()?;
        let open = fs::read_dir("/proc/self/fd").ok()?.count();
        Some(Self {
            cpu_seconds: ticks / TICKS_PER_SECOND,
            resident_bytes: kilobytes * 1024,
            open_files: i64::try_from(open).ok()?,
            threads: fields.get(17)?.parse().ok()?,
        })
    }
}
