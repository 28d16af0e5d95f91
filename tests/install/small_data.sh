# small_data FOLDER: 200 images of noise and their labels, as training and as test set.
small_data() {
  mkdir "$1"
  for set in train t10k; do
    { printf '\000\000\010\003\000\000\000\310\000\000\000\034\000\000\000\034'; head -c 156800 /dev/urandom; } \
      >"$1/$set-images-idx3-ubyte"
    { printf '\000\000\010\001\000\000\000\310'; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        printf '\000\001\002\003\004\005\006\007\010\011'; done; } >"$1/$set-labels-idx1-ubyte"
  done
}
