use clap::Parser;
mod engine; mod load; mod measure; mod search; mod statistics;
#[derive(Parser)]
enum C { Measure(measure::Spec), Prepare{name: load::Name, scale: f64, folder: std::path::PathBuf} }
fn main()->anyhow::Result<()>{
    match C::parse(){
        C::Measure(s)=>{ let o=measure::measure(&s)?; println!("{} b{} cap {} mops {:.3} hit {:.4} fillhit {:.4} rss {:.1}MB fillrss {:.1} items {} b/item {:.1} refused {} payload {:.1}MiB", s.cache,s.batch,s.capacity,o.mops(),o.hit_ratio,o.fill_hit_ratio,o.rss_bytes as f64/1e6,o.fill_rss_bytes as f64/1e6,o.items,o.bytes_per_item(),o.refused, o.items as f64*116.0/1048576.0);}
        C::Prepare{name,scale,folder}=>{ let l=load::prepare(name,1,scale,&folder)?; println!("{l:?}"); }
    }
    Ok(())
}
