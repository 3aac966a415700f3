//! `trtc bench`: latency and throughput of a bundle or a model.

use super::{
    args::{BenchArgs, Device},
    failure::{Failure, Result},
    files,
    inputs::{self, Named},
    out::Out,
    subject::{self, File, Schedule, Subject},
};
use serde_json::{Map, Value as Json, json};
use std::{
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use trtc_bundle::SegmentKind;
use trtc_runtime::{Input, RunError, SegmentTiming, Session, Value};

pub fn run(args: &BenchArgs) -> Result<()> {
    let subject = Subject::open(&args.file)?;
    let compiled;
    let on_gpu = matches!(args.device, Device::Cuda(_));
    let bundle = match &subject.file {
        File::Bundle(bundle) => Some(&**bundle),
        File::Model(model) if args.segments || on_gpu => {
            compiled = subject::compile(model, None, on_gpu)?;
            Some(&compiled.bundle)
        }
        File::Model(_) => None,
    };
    let (session, schedule) = match (bundle, &subject.file) {
        (Some(bundle), _) => {
            let schedule = subject::schedule(bundle, args.segments, false)?;
            (subject::session(bundle, &schedule, args.device, true)?, schedule)
        }
        (None, File::Model(model)) => (subject::original(model, true)?, Schedule::Best),
        (None, File::Bundle(_)) => return Err(Failure::bug("a bundle that is none")),
    };
    let values = match &args.given.inputs {
        Some(path) => inputs::read(path, session.inputs(), "input", true)?,
        None => {
            let mut symbols = match (bundle, &subject.file) {
                (Some(bundle), _) => bundle.manifest().symbols.clone(),
                (None, File::Model(model)) if inputs::is_open(session.inputs()) => {
                    subject::symbols_of(model)?
                }
                _ => Vec::new(),
            };
            let run = |values: &Named| session.run(&inputs::borrowed(values));
            let made_up = inputs::random_that_run(0, session.inputs(), &mut symbols, run)?;
            made_up.map_err(|error| subject::refused(&subject.shown, &error))?.0
        }
    };
    let measured =
        measure(&session, &values, args).map_err(|error| subject::refused(&subject.shown, &error))?;
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&as_json(&measured, args))
            .map_err(|error| Failure::bug(error.to_string()))?;
        files::write(path, format!("{text}\n").as_bytes())
            .map_err(|error| Failure::input(format!("{}: {error}", path.display())))?;
    }
    let mut out = Out::stdout();
    out.line(format_args!("bench    {} ({})", subject.shown, subject::describe(&session, &schedule)))?;
    out.line(format_args!("host     {}", session.backend()))?;
    print(&measured, args, &mut out)?;
    out.finish()
}

/// What was measured.
struct Measured {
    /// One a run, ascending.
    latencies: Vec<Duration>,
    /// From the first run's start to the last one's end, over all threads.
    wall: Duration,
    segments: Vec<SegmentTiming>,
}

/// Warms up, then runs `iterations` times from all threads together.
fn measure(session: &Session, values: &Named, args: &BenchArgs) -> Result<Measured, RunError> {
    let inputs: Vec<Input<'_>> = values.iter().map(|(_, value)| value.into()).collect();
    let threads = args.threads.get();
    let (ready, started) = (Barrier::new(threads + 1), Barrier::new(threads + 1));
    let next = AtomicUsize::new(0);
    let work = || {
        let mut outputs = vec![Value::Nothing; session.outputs().len()];
        let warm = Instant::now();
        let mut result = Ok(());
        // At least once, so that the first measured run finds its memory.
        loop {
            result = result.and_then(|()| session.run_into(&inputs, &mut outputs));
            if result.is_err() || warm.elapsed() >= Duration::from_millis(args.warmup_ms) {
                break;
            }
        }
        // A thread that failed must still come to the barriers.
        ready.wait();
        started.wait();
        result?;
        let mut latencies = Vec::new();
        while next.fetch_add(1, Relaxed) < args.iterations.get() {
            let start = Instant::now();
            session.run_into(&inputs, &mut outputs)?;
            latencies.push(start.elapsed());
        }
        Ok::<_, RunError>(latencies)
    };
    let (results, wall) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        ready.wait();
        session.reset_timings();
        let start = Instant::now();
        started.wait();
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        (results, start.elapsed())
    });
    let mut latencies = Vec::with_capacity(args.iterations.get());
    for result in results {
        match result {
            Ok(result) => latencies.extend(result?),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    latencies.sort_unstable();
    Ok(Measured { latencies, wall, segments: session.timings() })
}

/// The latency that so many percent of the runs do not exceed (nearest rank).
fn percentile(sorted: &[Duration], percent: f64) -> Duration {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or_default()
}

fn us(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e3
}

fn mean(sorted: &[Duration]) -> f64 {
    sorted.iter().map(|&latency| us(latency)).sum::<f64>() / sorted.len().max(1) as f64
}

impl Measured {
    fn throughput_per_s(&self) -> f64 {
        self.latencies.len() as f64 / self.wall.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

fn kind_name(kind: SegmentKind) -> &'static str {
    match kind {
        SegmentKind::Engine => "engine",
        SegmentKind::Host => "host",
        _ => "constant",
    }
}

fn as_json(measured: &Measured, args: &BenchArgs) -> Json {
    let sorted = &measured.latencies;
    let mut latency = Map::new();
    let mut put = |key: String, value: f64| latency.insert(key, ((value * 1e3).round() / 1e3).into());
    put("min".into(), us(percentile(sorted, 0.0)));
    put("mean".into(), mean(sorted));
    for &percent in [50.0, 90.0, 95.0, 99.0].iter().chain(&args.percentile) {
        put(format!("p{percent}"), us(percentile(sorted, percent)));
    }
    put("max".into(), us(percentile(sorted, 100.0)));
    let segments: Vec<Json> = measured
        .segments
        .iter()
        .map(|segment| {
            json!({
                "id": segment.id,
                "kind": kind_name(segment.kind),
                "mean_us": us(segment.total) / segment.runs.max(1) as f64,
            })
        })
        .collect();
    json!({
        "iterations": args.iterations,
        "threads": args.threads,
        "latency_us": latency,
        "throughput_per_s": measured.throughput_per_s(),
        "segments": segments,
    })
}

fn print(measured: &Measured, args: &BenchArgs, out: &mut Out) -> Result<()> {
    let sorted = &measured.latencies;
    let threads = args.threads.get();
    let plural = if threads == 1 { "" } else { "s" };
    out.line(format_args!("runs     {} from {threads} thread{plural}", sorted.len()))?;
    let mut cells = vec![
        ("min".to_owned(), us(percentile(sorted, 0.0))),
        ("mean".to_owned(), mean(sorted)),
        ("p50".to_owned(), us(percentile(sorted, 50.0))),
    ];
    let asked = args.percentile.iter().filter(|&&percent| percent != 50.0);
    cells.extend(asked.map(|&percent| (format!("p{percent}"), us(percentile(sorted, percent)))));
    cells.push(("max".to_owned(), us(percentile(sorted, 100.0))));
    let cells: Vec<String> = cells.into_iter().map(|(name, value)| format!("{name} {value:.1}")).collect();
    out.line(format_args!("latency  us: {}", cells.join("  ")))?;
    out.line(format_args!("rate     {:.1} runs a second", measured.throughput_per_s()))?;
    if args.segments {
        let width = measured.segments.iter().map(|segment| segment.id.len()).max().unwrap_or(0).max(7);
        out.line(format_args!("\n  {:<width$}  {:<8}  {:>10}", "segment", "kind", "mean, us"))?;
        for segment in &measured.segments {
            let mean_us = us(segment.total) / segment.runs.max(1) as f64;
            out.line(format_args!(
                "  {:<width$}  {:<8}  {mean_us:>10.1}",
                segment.id,
                kind_name(segment.kind)
            ))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::percentile;
    use std::time::Duration;

    #[test]
    fn percentiles_are_of_nearest_rank() {
        let sorted: Vec<Duration> = (1..=200).map(Duration::from_micros).collect();
        for (percent, us) in [(0.0, 1), (50.0, 100), (99.0, 198), (99.9, 200), (100.0, 200)] {
            assert_eq!(percentile(&sorted, percent), Duration::from_micros(us), "{percent}");
        }
        assert_eq!(percentile(&[], 50.0), Duration::ZERO);
    }
}
