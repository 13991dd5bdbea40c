//! Lets examples, tests and benches find the libtorch that torch-sys was built against.
fn main() {
    if let Ok(lib) = std::env::var("DEP_TCH_LIBTORCH_LIB") {
        for kind in ["examples", "tests", "benches"] {
            println!("cargo:rustc-link-arg-{kind}=-Wl,-rpath,{lib}");
        }
    }
}
