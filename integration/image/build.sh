#!/bin/sh
# Builds the image the container tests run: the redis-server installed on this
# machine, the libraries it links, and nothing else. No registry is asked, so it
# works where only an engine is.
#
#	image/build.sh [name[:tag]]      default: redlock-test/redis
#
# The same redis-server gives the same layer, byte for byte: the file system is
# packed sorted, owned by root and dated by SOURCE_DATE_EPOCH (default 0).
# The image has no shell and no entrypoint: run it as `redis-server --flag ...`,
# which is how the official image is run as well.
set -eu

image=${1:-redlock-test/redis}
docker=${DOCKER:-docker}

die() {
	echo "image/build.sh: $*" >&2
	exit 1
}

server=$(command -v redis-server) || die "redis-server is not installed: install it (Debian: apt-get install redis-server), or name an image that exists in REDLOCK_TEST_IMAGE"
command -v "$docker" >/dev/null || die "the $docker command is not installed: it hands the image to the engine (DOCKER=podman names another)"
command -v ldd >/dev/null || die "ldd is not installed: it names the libraries that redis-server links"
"$docker" version >/dev/null 2>&1 || die "no container engine answers: try '$docker version'"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
root=$work/root

# redis-server is a symlink on some systems; the image gets the file, by its usual name.
mkdir -p "$root/usr/bin" "$root/data" "$root/tmp"
cp -L "$server" "$root/usr/bin/redis-server"

# Every absolute path that ldd prints: "name => /path (address)" for libraries and
# "/path (address)" for the loader, kept where the program will look for it. The
# kernel's own vdso has no path. A static server has nothing to add.
libraries=$(ldd "$server" 2>&1) || case $libraries in
*"not a dynamic executable"* | *"statically linked"*) libraries= ;;
*) die "ldd $server: $libraries" ;;
esac
case $libraries in
*"not found"*) die "redis-server misses a library: $libraries" ;;
esac
for library in $(echo "$libraries" | sed -n 's|^[^/]*\(/[^ ]*\) (0x.*|\1|p'); do
	mkdir -p "$root${library%/*}"
	cp -L "$library" "$root$library"
done
chmod -R u=rwX,go=rX "$root"
chmod 1777 "$root/tmp"

tar --create --file "$work/root.tar" --directory "$root" --sort=name \
	--owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-0}" --format=gnu . ||
	die "cannot pack $root"

replaced=$("$docker" images --quiet "$image")
"$docker" import \
	--change 'ENV PATH=/usr/bin' \
	--change 'WORKDIR /data' \
	--change 'CMD ["redis-server"]' \
	--message "redis-server and its libraries, by integration/image/build.sh" \
	"$work/root.tar" "$image" >/dev/null || die "the engine did not take the image $image"

# The image that had the name before would stay behind without one. It may be in
# use by a run on this machine: then the engine keeps it, and that is right.
if [ -n "$replaced" ]; then
	"$docker" rmi "$replaced" >/dev/null 2>&1 || true
fi

echo "$image: $("$server" --version)"
