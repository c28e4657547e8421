//! The nine applications of UniCache's table 2 as skeletons: which objects an invocation reads and writes, in which functions, and
//! nothing else. Sources: FunctionBench (ML-serv, ML-tr, VidConv), ServerlessBench (ImgProc, DataAn), TrainTicket, and vSwarm with
//! DeathStarBench's hotel and Google's shop behind it (HotelR, eShop, MapRed). Sizes of megabytes are made smaller.

use tidemark_cachelet::sim::Rng;

/// Objects of one kind, by numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) name: &'static str,
    pub(super) count: u64,
    pub(super) size_bytes: usize,
}

/// A read or a write of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    /// The group's place in the application's list.
    pub(super) group: usize,
    pub(super) number: u64,
    pub(super) is_write: bool,
}

/// The part of a request that one function does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// The function's place in the application's list.
    pub(super) function: usize,
    pub(super) accesses: Vec<Access>,
}

/// The steps of a request, one after the other.
pub(super) type Request = Vec<Step>;

/// An application.
#[derive(Debug)]
pub(super) struct App {
    /// Its name in the paper.
    pub(super) name: &'static str,
    /// Its name as a tenant.
    pub(super) tenant: &'static str,
    /// UniCache's choice for it, as its table 2 says.
    pub(super) paper: &'static str,
    pub(super) functions: &'static [&'static str],
    pub(super) groups: &'static [Group],
    pub(super) request: fn(&mut Rng) -> Request,
}

const KIB: usize = 1 << 10;

const fn group(name: &'static str, count: u64, size_bytes: usize) -> Group {
    Group {
        name,
        count,
        size_bytes,
    }
}

fn get(group: usize, number: u64) -> Access {
    Access {
        group,
        number,
        is_write: false,
    }
}

fn put(group: usize, number: u64) -> Access {
    Access {
        is_write: true,
        ..get(group, number)
    }
}

fn step(function: usize, accesses: Vec<Access>) -> Step {
    Step { function, accesses }
}

/// One of so many, of which the first ones are asked for most: half of the requests go to an eighth.
fn popular(rng: &mut Rng, count: u64) -> u64 {
    let place = rng.unit().powi(3) * count as f64;
    (place as u64).min(count - 1)
}

/// So many different ones of a group, from a place on.
fn several(group: usize, from: u64, how_many: u64, count: u64) -> impl Iterator<Item = Access> {
    (from..from + how_many).map(move |number| get(group, number % count))
}

/// FunctionBench `model_serving`: the model and the input; the result goes to the caller.
const ML_SERV: App = App {
    name: "ML-serv",
    tenant: "mlserv",
    paper: "Per-Func, LRU, DirInv, Flat",
    functions: &["serve"],
    groups: &[group("model", 2, 512 * KIB), group("input", 200, 32 * KIB)],
    request: |rng| vec![step(0, vec![get(0, rng.below(2)), get(1, popular(rng, 200))])],
};

/// FunctionBench `model_training`: the data set, and the model that comes of it.
const ML_TR: App = App {
    name: "ML-tr",
    tenant: "mltr",
    paper: "Per-Func, LRU, SequenceNumbers",
    functions: &["train"],
    groups: &[group("dataset", 4, 1_024 * KIB), group("model", 4, 64 * KIB)],
    request: |rng| {
        let which = rng.below(4);
        vec![step(0, vec![get(0, which), put(1, which)])]
    },
};

/// FunctionBench `video_processing`: a video, and what it is converted to.
const VID_CONV: App = App {
    name: "VidConv",
    tenant: "vidconv",
    paper: "Per-Func, LRU, SequenceNumbers",
    functions: &["convert"],
    groups: &[group("video", 16, 1_024 * KIB), group("result", 64, 256 * KIB)],
    request: |rng| vec![step(0, vec![get(0, popular(rng, 16)), put(1, rng.below(64))])],
};

/// TrainTicket: nine of ten search a journey, the others book one.
const TRAIN_TICKET: App = App {
    name: "TrainTicket",
    tenant: "trainticket",
    paper: "Per-App, FIFO, DirUpd, Hierarchical",
    functions: &["travel", "basic", "seat", "order"],
    groups: &[
        group("station", 60, 200),
        group("trip", 40, KIB),
        group("route", 40, 500),
        group("price", 40, 200),
        group("train", 8, 200),
        group("seats", 40, 2 * KIB),
        group("contact", 200, 300),
        group("order", 400, 500),
    ],
    request: |rng| {
        let trip = popular(rng, 40);
        if rng.below(10) > 0 {
            let (from, to) = (rng.below(60), rng.below(60));
            vec![
                step(0, vec![get(0, from), get(0, to), get(1, trip)]),
                step(1, vec![get(2, trip), get(3, trip), get(4, trip % 8)]),
                step(2, vec![get(5, trip)]),
            ]
        } else {
            vec![
                step(0, vec![get(1, trip)]),
                step(2, vec![get(5, trip)]),
                step(3, vec![get(6, rng.below(200)), put(7, rng.below(400)), put(5, trip)]),
            ]
        }
    },
};

/// ServerlessBench's image processing: metadata of an image, a thumbnail, and both are stored.
const IMG_PROC: App = App {
    name: "ImgProc",
    tenant: "imgproc",
    paper: "Per-Func, Prio-LRU, DirInv, Flat",
    functions: &["extract", "thumbnail", "record"],
    groups: &[
        group("image", 48, 256 * KIB),
        group("thumbnail", 48, 10 * KIB),
        group("metadata", 48, KIB),
    ],
    request: |rng| {
        let image = popular(rng, 48);
        vec![
            step(0, vec![get(0, image)]),
            step(1, vec![get(0, image), put(1, image)]),
            step(2, vec![put(2, image)]),
        ]
    },
};

/// ServerlessBench's data analysis: a fifth inserts a wage, which is analysed at once; the others ask for the analysis.
const DATA_AN: App = App {
    name: "DataAn",
    tenant: "dataan",
    paper: "Per-App, Prio-LRU, DirUpd, Flat",
    functions: &["insert", "analyse", "report"],
    groups: &[
        group("rates", 1, 2 * KIB),
        group("wage", 64, KIB),
        group("totals", 8, 4 * KIB),
    ],
    request: |rng| {
        let (wage, role) = (rng.below(64), rng.below(8));
        let wages = several(1, role * 8, 8, 64);
        if rng.below(5) == 0 {
            vec![
                step(0, vec![get(0, 0), put(1, wage)]),
                step(1, wages.chain([put(2, role)]).collect()),
            ]
        } else {
            vec![step(2, [get(0, 0), get(2, role)].into_iter().chain(wages).collect())]
        }
    },
};

/// DeathStarBench's hotel reservation in its own mix: 60 % search, 39 % ask for a recommendation, each 0.5 % log in and reserve.
const HOTEL_R: App = App {
    name: "HotelR",
    tenant: "hotelr",
    paper: "Per-App, FIFO, DirUpd, Hierarchical",
    functions: &["geo", "rate", "profile", "reserve"],
    groups: &[
        group("near", 20, 2 * KIB),
        group("rate", 80, 500),
        group("profile", 80, KIB),
        group("best", 3, 2 * KIB),
        group("user", 500, 200),
        group("rooms", 80, KIB),
    ],
    request: |rng| {
        let hotel = popular(rng, 80);
        match rng.below(200) {
            0 => vec![step(3, vec![get(4, rng.below(500))])],
            1 => vec![step(3, vec![get(4, rng.below(500)), get(5, hotel), put(5, hotel)])],
            2..80 => vec![
                step(0, vec![get(3, rng.below(3))]),
                step(2, several(2, hotel, 5, 80).collect()),
            ],
            _ => vec![
                step(0, vec![get(0, rng.below(20))]),
                step(1, several(1, hotel, 5, 80).collect()),
                step(2, several(2, hotel, 5, 80).collect()),
            ],
        }
    },
};

/// Google's shop with the weights of its load generator: 1 home page, 2 currencies, 10 products, 2 into the cart, 3 carts, 1 checkout.
const E_SHOP: App = App {
    name: "eShop",
    tenant: "eshop",
    paper: "Per-Func, FIFO, DirUpd, Hierarchical",
    functions: &["front", "catalog", "cart", "checkout"],
    groups: &[
        group("list", 1, 8 * KIB),
        group("currency", 1, KIB),
        group("product", 100, KIB),
        group("cart", 200, 500),
        group("advert", 20, 500),
        group("order", 400, KIB),
    ],
    request: |rng| {
        let (product, user) = (popular(rng, 100), rng.below(200));
        let front = step(0, vec![get(1, 0), get(4, rng.below(20))]);
        match rng.below(19) {
            0..3 => vec![front, step(1, vec![get(0, 0)]), step(2, vec![get(3, user)])],
            3..13 => vec![
                front,
                step(1, vec![get(2, product), get(0, 0)]),
                step(2, vec![get(3, user)]),
            ],
            13..15 => vec![
                step(1, vec![get(2, product)]),
                step(2, vec![get(3, user), put(3, user)]),
            ],
            15..18 => vec![
                front,
                step(2, vec![get(3, user)]),
                step(1, several(2, product, 3, 100).collect()),
            ],
            _ => vec![
                step(2, vec![get(3, user)]),
                step(1, several(2, product, 3, 100).collect()),
                step(3, vec![get(1, 0), put(5, rng.below(400))]),
                step(2, vec![put(3, user)]),
            ],
        }
    },
};

/// vSwarm's map-reduce: a mapper reads several pieces of the input and writes one result, a reducer reads several of these.
const MAP_RED: App = App {
    name: "MapRed",
    tenant: "mapred",
    paper: "Per-App, LRU, DirUpd, Flat",
    functions: &["map", "reduce"],
    groups: &[
        group("input", 64, 64 * KIB),
        group("mapped", 32, 16 * KIB),
        group("reduced", 16, 4 * KIB),
    ],
    request: |rng| {
        let (job, piece) = (rng.below(8), rng.below(16));
        let mapped = job * 4 + rng.below(4);
        vec![
            step(0, several(0, piece * 4, 4, 64).chain([put(1, mapped)]).collect()),
            step(1, several(1, job * 4, 4, 32).chain([put(2, job)]).collect()),
        ]
    },
};

/// All of them, in the order of the paper's table.
pub(super) const ALL: [&App; 9] = [
    &ML_SERV,
    &ML_TR,
    &VID_CONV,
    &TRAIN_TICKET,
    &IMG_PROC,
    &DATA_AN,
    &HOTEL_R,
    &E_SHOP,
    &MAP_RED,
];

impl App {
    /// An object's path in the bucket of all applications.
    pub(super) fn path(&self, group: usize, number: u64) -> String {
        format!("/{BUCKET}/{}-{}-{number}", self.tenant, self.groups[group].name)
    }

    /// So many requests, the same for the same seed.
    pub(super) fn requests(&self, seed: u64, count: usize) -> Vec<Request> {
        let mut rng = Rng::new(seed);
        (0..count).map(|_| (self.request)(&mut rng)).collect()
    }
}

/// How many objects a request uses, in the mean.
pub(super) fn accesses_per_request(app: &App) -> f64 {
    const DRAWN: usize = 10_000;
    let steps = |request: &Request| request.iter().map(|step| step.accesses.len()).sum::<usize>();
    app.requests(1, DRAWN).iter().map(steps).sum::<usize>() as f64 / DRAWN as f64
}

/// The bucket of all applications.
pub(super) const BUCKET: &str = "apps";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skeletons_stay_within_their_functions_and_objects() {
        for app in ALL {
            let requests = app.requests(7, 2_000);
            assert_eq!(requests, app.requests(7, 2_000), "{}", app.name);
            let steps = || requests.iter().flatten();
            for step in steps() {
                assert!(step.function < app.functions.len(), "{}: {step:?}", app.name);
                for access in &step.accesses {
                    let group = app.groups.get(access.group).unwrap();
                    assert!(access.number < group.count, "{}: {access:?}", app.name);
                }
            }
            let used = |function: usize| steps().any(|step| step.function == function);
            assert!((0..app.functions.len()).all(used), "{}", app.name);
            let touched = |group: usize| {
                steps()
                    .flat_map(|step| &step.accesses)
                    .any(|access| access.group == group)
            };
            assert!((0..app.groups.len()).all(touched), "{}", app.name);
        }
    }

    /// Writes of all accesses, in percent, and accesses of a request.
    fn check(name: &str, write_percent: std::ops::Range<f64>, accesses: std::ops::Range<f64>) {
        let app = ALL.into_iter().find(|app| app.name == name).unwrap();
        let requests = app.requests(1, 4_000);
        let all: Vec<_> = requests.iter().flatten().flat_map(|step| &step.accesses).collect();
        let writes = all.iter().filter(|access| access.is_write).count();
        let percent = 100.0 * writes as f64 / all.len() as f64;
        assert!(write_percent.contains(&percent), "{name}: {percent}");
        let each = accesses_per_request(app);
        assert!(accesses.contains(&each), "{name}: {each}");
    }

    #[test]
    fn mixes_are_those_of_the_sources() {
        check("ML-serv", 0.0..0.1, 1.9..2.1);
        check("ML-tr", 49.0..51.0, 1.9..2.1);
        check("VidConv", 49.0..51.0, 1.9..2.1);
        check("TrainTicket", 2.0..4.0, 6.0..7.5);
        check("ImgProc", 49.0..51.0, 3.9..4.1);
        check("DataAn", 3.0..5.0, 9.5..11.0);
        check("HotelR", 0.0..0.2, 8.0..10.0);
        check("eShop", 4.0..7.0, 3.5..5.5);
        check("MapRed", 19.0..21.0, 9.9..10.1);
    }

    #[test]
    fn some_are_asked_for_more_than_others() {
        let mut rng = Rng::new(3);
        let drawn: Vec<u64> = (0..10_000).map(|_| popular(&mut rng, 80)).collect();
        let first = drawn.iter().filter(|number| **number < 10).count();
        assert!((4_500..5_500).contains(&first), "{first}");
    }
}
