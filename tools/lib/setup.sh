# Shared by tools/quickstart, tools/test, tools/bench and .ci/run: packages, configuring, building.
# Sourced by bash; the caller's name prefixes every message, and messages go to stderr.

tessera_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
tessera_build=${TESSERA_BUILD_DIR:-$tessera_root/build}
tessera_self=${0#"$tessera_root"/}

say() { printf '%s: %s\n' "$tessera_self" "$*" >&2; }
stop() {
  say "$2"
  exit "$1"
}

# The package with Boost 1.81 or newer: Debian 12 has it beside an older default.
boost_package() {
  if [[ "$(. /etc/os-release && echo "$ID $VERSION_ID")" == "debian 12" ]]; then
    echo libboost1.81-dev
  else
    echo libboost-dev
  fi
}

# packages_for tools|test|bench|ci...: what each step needs, each package once.
packages_for() {
  local step
  for step in "$@"; do
    case $step in
      tools) echo g++ cmake ninja-build libcli11-dev libfmt-dev "$(boost_package)" ;;
      test) echo libgtest-dev libeigen3-dev pkg-config python3 strace ;;
      bench) echo libbenchmark-dev ;;
      ci) echo ccache clang clang-format clang-tidy libomp-dev qemu-user ;;
    esac
  done | tr ' ' '\n' | sort -u
}

is_installed() {
  [[ $(dpkg-query -W -f='${db:Status-Abbrev}' "$1" 2>/dev/null) == ii* ]]
}

# Installs what is missing for these steps; without root, prints the line to run and stops with 3.
install_missing() {
  if ! command -v dpkg-query >/dev/null; then
    say "no dpkg on this machine; CMake will name what is missing"
    return
  fi
  local missing=() package
  for package in $(packages_for "$@"); do
    is_installed "$package" || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  if ((EUID != 0)); then
    say "packages are missing; install them with this line and start again:"
    echo "sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 3
  fi
  say "installing ${missing[*]}"
  {
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
  } >&2 || stop 1 "apt-get could not install: ${missing[*]}"
}

# Cores, but no more than one compiler per 1.5 GB of memory.
job_count() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemTotal:/ { print int($2 / 1500000) }' /proc/meminfo)
  ((memory < 1)) && memory=1
  echo $((cores < memory ? cores : memory))
}

# Path of an nvcc that can build the CUDA rows, version 12 or newer; status 1 if there is none.
find_nvcc() {
  local nvcc release
  nvcc=${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
  [[ -x $nvcc ]] || return 1
  release=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\).*/\1/p')
  if ((${release:-0} < 12)); then
    say "$nvcc is of CUDA ${release:-?}, the CUDA rows need 12 or newer"
    return 1
  fi
  echo "$nvcc"
}

# Status 0 where an NVIDIA GPU is.
has_gpu() {
  [[ $(nvidia-smi -L 2>/dev/null) == *GPU\ * ]] || compgen -G '/dev/nvidia[0-9]*' >/dev/null
}

# CMake arguments that decide about CUDA: rows for GPUs where nvcc is. TESSERA_CUDA_ARCHITECTURES, also
# an empty one, decides instead if it is set.
cuda_arguments() {
  local architectures=${TESSERA_CUDA_ARCHITECTURES-auto} nvcc
  [[ -n $architectures ]] || return 0
  if ! nvcc=$(find_nvcc); then
    [[ $architectures == auto ]] || stop 1 "TESSERA_CUDA_ARCHITECTURES is '$architectures' and there is no nvcc"
    return 0
  fi
  [[ $architectures == auto ]] && architectures="80;90a-real"
  echo "-DCMAKE_CUDA_COMPILER=$nvcc"
  echo "-DTESSERA_CUDA_ARCHITECTURES=$architectures"
}

# The back ends that tools/quickstart builds unasked: a toolkit without a GPU is no reason to wait for nvcc.
default_backends() {
  if [[ -n ${TESSERA_CUDA_ARCHITECTURES-auto} ]] && has_gpu && find_nvcc >/dev/null; then
    echo cpu,cuda
  else
    echo cpu
  fi
}

# Whether building the target now would compile something for GPUs.
compiles_for_gpus() {
  [[ $(cmake --build "$tessera_build" --target "$1" -- -n 2>/dev/null) == *.cu.o* ]]
}

# What the last configuration of the build folder says of an option; nothing if there was none.
option_of_build() {
  sed -n "s/^$1:[A-Z]*=//p" "$tessera_build/CMakeCache.txt" 2>/dev/null || true
}

# configure [CMake arguments]: options that are not given keep the value of the last configuration.
# About CUDA the first one decides, and any with decides_cuda=yes.
configure() {
  local initial=() cuda=""
  if [[ ! -e $tessera_build/CMakeCache.txt ]]; then
    initial=(-G Ninja -DCMAKE_BUILD_TYPE=Release)
    decides_cuda=yes
  fi
  if [[ ${decides_cuda:-} ]]; then
    cuda=$(cuda_arguments) || exit 1
    [[ -z $cuda ]] || mapfile -t -O "${#initial[@]}" initial <<<"$cuda"
  fi
  decides_cuda=""
  say "configuring $tessera_build"
  cmake -S "$tessera_root" -B "$tessera_build" "${initial[@]}" "$@" >"$tessera_build.log" 2>&1 || {
    cat "$tessera_build.log" >&2
    stop 1 "configuring failed"
  }
  rm -f "$tessera_build.log"
}

# build TARGET...: progress is the build tool's own.
build() {
  say "building $* with $(job_count) jobs"
  cmake --build "$tessera_build" --parallel "$(job_count)" --target "$@" >&2 ||
    stop 1 "building failed"
}
