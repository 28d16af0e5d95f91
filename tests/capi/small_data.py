"""A small data set in the format of MNIST."""
import os
import struct

SAMPLES, SIDE = 60, 4


def write_data(folder):
    os.mkdir(os.path.join(folder, "data"))
    for name in ("train", "t10k"):
        with open(os.path.join(folder, "data", name + "-images-idx3-ubyte"), "wb") as file:
            file.write(struct.pack(">IIII", 0x803, SAMPLES, SIDE, SIDE))
            file.write(bytes(i // (SIDE * SIDE) for i in range(SAMPLES * SIDE * SIDE)))
        with open(os.path.join(folder, "data", name + "-labels-idx1-ubyte"), "wb") as file:
            file.write(struct.pack(">II", 0x801, SAMPLES))
            file.write(bytes(i % 10 for i in range(SAMPLES)))
