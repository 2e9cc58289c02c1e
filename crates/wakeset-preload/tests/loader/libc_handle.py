import ctypes
import os
import tempfile

libc = ctypes.CDLL("libc.so.6", use_errno=True)
for end in (0, 1):
    ends = os.pipe()
    print("close", libc.close(ends[end]), libc.close(ends[end]), ctypes.get_errno())
    with tempfile.TemporaryFile() as file:
        same = file.fileno() == ends[end]
        written = os.write(file.fileno(), b"fourteen bytes")
        print(same, written, os.pread(file.fileno(), 20, 0), os.fstat(file.fileno()).st_size)
    os.close(ends[1 - end])

ends = os.pipe()
print(libc.write(ends[1], b"there", 5), os.read(ends[0], 10))
print(os.write(ends[1], b"back"), end=" ")
buffer = ctypes.create_string_buffer(10)
print(libc.read(ends[0], buffer, 10), buffer.value)
