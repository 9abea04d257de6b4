"""`ostinato serve`: models behind the Open Inference Protocol (KServe v2), over HTTP and gRPC.

    http, websocket, grpc       transport, by libraries: a request in, a response out
      `cluster`                 which worker has which sequence; limits, time-outs, crashes
        `worker`                a process: messages of its sequences, batched by pools

`protocol` has what all of them talk about; `metrics` counts.
"""
