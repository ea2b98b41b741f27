package postroad.jms;

import jakarta.jms.Destination;

/** The features over a link from a Postroad to a Classic. */
class FeaturesToClassicTest extends FeaturesOverLink {
    private Classic depot;

    @Override
    void startPeer() throws Exception {
        depot = new Classic("depot");
    }

    @Override
    void stopPeer() throws Exception {
        depot.close();
    }

    @Override
    String peerUrl() throws Exception {
        return depot.url();
    }

    @Override
    boolean peerHasDemand(Destination destination) throws Exception {
        return depot.consumers(destination) > 0;
    }
}
