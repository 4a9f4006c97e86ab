#!/bin/sh
# Compiles the Java drivers and writes the class paths target/classpath-497.txt and target/classpath-533.txt.
# Does nothing, and quickly, when no source is newer than the last build. Maven's own settings and proxies apply.
set -eu
cd "$(dirname "$0")"
mkdir -p target

# Several test runs may start at the same time; the first builds, the others wait.
exec 9>target/.lock
if command -v flock >/dev/null; then flock 9; fi

up_to_date() {
    [ -e target/.built ] || return 1
    [ -z "$(find pom.xml build.sh src -newer target/.built -print | head -n 1)" ] || return 1
    # The local Maven repository may have been emptied since: look for the first jar of each class path.
    for version in 497 533; do
        [ -e "$(cut -d: -f2 "target/classpath-$version.txt")" ] || return 1
    done
}

maven() { # quiet unless it fails
    mvn -q -B "$@" >target/maven.log 2>&1 || { cat target/maven.log >&2; exit 1; }
}

class_path() { # rocketmq version, file suffix
    maven -Drocketmq.version="$1" dependency:build-classpath -Dmdep.outputFile=target/jars.txt
    printf '%s:%s' "$PWD/target/drivers.jar" "$(cat target/jars.txt)" >"target/classpath-$2.txt"
}

if up_to_date; then exit 0; fi
rm -f target/.built
touch target/.building # a source that changes while this builds is newer than this
rm -rf target/classes target/*.jsa
maven compile
jar --create --file target/drivers.jar -C target/classes . # class archives take no directories
class_path 4.9.7 497
class_path 5.3.3 533
mv target/.building target/.built
