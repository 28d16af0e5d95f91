@0xa6c1f0d2b98e4773;
# The room wire: the messages between processes, one schema per conversation. It knows no C++ type of the other rooms.
# The beginning of every frame between the actors of two processes: one Cap'n Proto segment of the root pointer and this
# struct, 48 bytes in all, so that a program can store and load it as a plain struct. After it, the head contains the
# body (unless a flag says that it is in the payload), then one tensor record of 48 bytes for each tensor. The body of a
# credit is a list of (actor id, messages, charge), 8 bytes each; that of a batch is heads, each after its length in 4
# bytes.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire::schema");

struct Header {
  version @0 :UInt8;     # 4
  kind @1 :UInt8;        # 1 message, 2 monitor, 3 down, 4 release, 5 credit, 6 heartbeat, 7 batch, 8 call, 9 answer, 10 link, 11 unlink, 12 window, 13 piece, 14 refused, 15 payload piece, 16 passed
  flags @2 :UInt8;       # 1 the body starts with a forwarding stack, 2 the body ends the payload, 4 void: fills a gap only, 8 plain: the body is a type's id and a value's bytes, 16 free: not counted against the window, 32 lone: the message is one tensor, the body its data type and extents, 8 bytes each, 64 failed: an answer's body is an error; of a message: its payload was sent in pieces; of a payload's piece: no more of them follow, 128 pieces: the body is the number and the size of one that was sent before in pieces, 8 bytes each
  tensors @3 :UInt8;     # records at the end of the head
  sourcePeer @4 :UInt16; # the process that `source` lives in
  charge @10 :UInt16;    # message: the memory that it takes at the receiver: the lower 11 bits, shifted to the left by the upper 5, in units of 64 bytes
  sequence @5 :UInt32;   # message, link, unlink: number among this process's messages to `target`, from 0, wraps; payload piece: how many pieces the payload has
  order @6 :UInt32;      # message, link, unlink, down, passed: number among this process's to the receiving process, from 0, wraps; payload piece: that of the message
  messageId @7 :UInt64;  # message: CAF's message id; release: a token, more of them in the body; credit: messages handled since the start; batch: number of heads in it; call, answer: a ticket of the caller; window: messages; piece: the body's number; refused: how many messages; payload piece: the key of the sink for the payload, or 0; passed: that of the request
  source @8 :UInt64;     # actor id of the sender (0: none); down: the actor that ended; credit: the charge of those messages; link, unlink: the actor that the target is linked to; window: units of charge; piece: the body's size; payload piece: the payload's size; passed: the actor that has the request now
  target @9 :UInt64;     # actor id of the receiver; monitor: the actor to watch; call: the actor that is called; window: the actor that the limits are for; piece: position of its payload in the body; payload piece: its position in the payload, or, if the payload failed, how many pieces were sent; passed: the actor that sent the request
}
