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
        let Some((cpu_seconds, gauges)) = read() else { return Ok(()) };
        let cpu = ConstCounter::new(cpu_seconds);
        let (name, help) = ("process_cpu_seconds", "Time that this process computed");
        cpu.encode(encoder.encode_descriptor(name, help, None, cpu.metric_type())?)?;
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

/// Name, help and value.
type Measured = (&'static str, &'static str, i64);

/// The time on CPUs in seconds, and the gauges.
fn read() -> Option<(f64, [Measured; 3])> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program is in brackets and may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split_whitespace().collect();
    let ticks: f64 = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    let threads = fields.get(17)?.parse().ok()?;
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: i64 = resident.trim().trim_end_matches(" kB").parse().ok()?;
    let open = i64::try_from(fs::read_dir("/proc/self/fd").ok()?.count()).ok()?;
    let gauges = [
        ("process_resident_memory_bytes", "Memory of this process", kilobytes * 1024),
        ("process_open_fds", "Files and sockets that are open", open),
        ("process_threads", "Threads of this process", threads),
    ];
    Some((ticks / TICKS_PER_SECOND, gauges))
}
