@0xa6c1f0d2b98e4773;
# What every frame between the actors of two processes starts with: one Cap'n Proto segment of the root pointer and this
# struct, 48 bytes in all, so that a program can store and load it as a plain struct. What follows in the head: the body
# (unless the flag says that it lies in the payload), then one tensor record of 48 bytes for each tensor. The body of a
# credit is a list of (actor id, messages, charge), 8 bytes each; that of a batch is heads, each behind its length in 4.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire::schema");

struct Header {
  version @0 :UInt8;     # 1
  kind @1 :UInt8;        # 1 message, 2 monitor, 3 down, 4 release, 5 credit, 6 heartbeat, 7 batch, 8 call, 9 answer
  flags @2 :UInt8;       # 1 the body starts with a forwarding stack, 2 the body ends the payload, 4 void: fills a gap only, 8 plain: the body is a type's id and a value's bytes, 16 free: not counted against the window, 32 lone: the message is one tensor, the body its data type and extents, 8 bytes each, 64 failed: an answer's body is an error
  tensors @3 :UInt8;     # records at the end of the head
  sourcePeer @4 :UInt16; # the process that `source` lives in
  charge @10 :UInt16;    # message: what it takes up at the receiver, in units of 4 KiB
  sequence @5 :UInt32;   # message: number among this process's messages to `target`, from 0, wraps
  order @6 :UInt32;      # message, down: number among this process's to the receiving process, from 0, wraps
  messageId @7 :UInt64;  # message: CAF's message id; release: a token, more of them in the body; credit: messages dealt with since the start; batch: heads in it; call, answer: a ticket of the caller
  source @8 :UInt64;     # actor id of the sender (0: none); down: the actor that ended; credit: the charge of those messages
  target @9 :UInt64;     # actor id of the receiver; monitor: the actor to watch; call: the actor that is called
}
