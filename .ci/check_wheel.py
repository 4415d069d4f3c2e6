"""Check that a wheel holds what git tracks under pgjobs/, all of it and nothing else. Usage: check_wheel.py WHEEL"""

import email
import subprocess
import sys
import zipfile

with zipfile.ZipFile(sys.argv[1]) as wheel:
    names = set(wheel.namelist())
    info = next(name for name in names if name.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(wheel.read(info))

packed = {name for name in names if not name.startswith(info.split("/")[0])}
tracked = set(subprocess.check_output(["git", "ls-files", "pgjobs"], text=True).splitlines())
needs = [need for need in metadata.get_all("Requires-Dist", []) if "extra ==" not in need]

problems = [f"missing: {name}" for name in sorted(tracked - packed)]
problems += [f"surplus: {name}" for name in sorted(packed - tracked)]
problems += [
    f"none of its kind: pgjobs/{kind}" for kind in ("py.typed", ".sql") if not any(n.endswith(kind) for n in packed)
]
if sorted(need.split(">")[0] for need in needs) != ["cronsim", "django", "psycopg"]:
    problems.append(f"run-time needs: {needs}")
if problems:
    sys.exit("\n".join(problems))
sql = [name for name in packed if name.endswith(".sql")]
print(f"{sys.argv[1].rpartition('/')[2]}: {len(packed)} files, {len(sql)} of them SQL")
