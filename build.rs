//! With the feature `torch`: compiles the C++ side against the libtorch that torch-sys was built
//! against, and lets this package's examples, tests and benches find it without LD_LIBRARY_PATH.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/counters/torch/allocator.cpp");
    #[cfg(feature = "torch")]
    torch::build();
}

#[cfg(feature = "torch")]
mod torch {
    use std::env;
    use std::path::PathBuf;

    pub(crate) fn build() {
        let Ok(lib) = env::var("DEP_TCH_LIBTORCH_LIB") else {
            println!("cargo:error=expected torch-sys to tell where libtorch is, found nothing");
            return;
        };
        println!("cargo:rustc-link-arg=-Wl,-rpath,{lib}");
        // As torch-sys does: beside the libraries, unless LIBTORCH_INCLUDE says otherwise.
        println!("cargo:rerun-if-env-changed=LIBTORCH_INCLUDE");
        println!("cargo:rerun-if-env-changed=LIBTORCH_CXX11_ABI");
        let root = env::var("LIBTORCH_INCLUDE")
            .map_or_else(|_| PathBuf::from(&lib).join(".."), PathBuf::from);
        let abi = env::var("LIBTORCH_CXX11_ABI").unwrap_or_else(|_| "1".to_owned());
        cc::Build::new()
            .cpp(true)
            .pic(true)
            .warnings(false)
            .std("c++17")
            .flag(format!("-D_GLIBCXX_USE_CXX11_ABI={abi}"))
            .include(root.join("include"))
            .include(root.join("include/torch/csrc/api/include"))
            .file("src/counters/torch/allocator.cpp")
            .compile("phasescope_allocator");
    }
}
