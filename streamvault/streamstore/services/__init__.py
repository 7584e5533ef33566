"""What is built on a store's streams: leases, ledgers, queues."""
